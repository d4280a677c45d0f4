"""The agent of one capsule: takes commands for it, commits it by its policy, and brings the other parts together.

``committer`` takes commits, ``commit_writer`` makes them durable, ``proxy_supervisor`` keeps the proxy, ``failures`` sees what
goes wrong. Everything waits in one event loop. The service does not depend on the agent: should it die, the service, its process 1
and the proxy go on, and the next command starts another agent.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from typing import Any

import structlog

from relive.agent.capsule.egress_recorder import EgressSupervisor
from relive.agent.capsule.exit_wait import wait_for_end
from relive.agent.capsule.injection import remove_rings
from relive.agent.capsule.leftovers import remove_unused
from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.log_rotation import Bounding
from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.agent.capsule.starting import capsule_target, present_target
from relive.agent.capsule.supervisor import Supervisor
from relive.agent.commits.changes import Changes, changes_of
from relive.agent.commits.commit_writer import CommitWriter
from relive.agent.commits.committer import Committer
from relive.agent.commits.dumper import CriuDumper, dumper_settings
from relive.agent.commits.pace import CommitPace, recent_footprint
from relive.agent.commits.policy import PolicyCommits
from relive.agent.commits.protection import Protection
from relive.agent.commits.service_cost import ServiceCost, waited_for_processor
from relive.agent.control.background import BackgroundTasks
from relive.agent.control.proxy_supervisor import ProxySupervisor
from relive.agent.control.removal import end_with
from relive.agent.control.server import serve_control
from relive.agent.failures.exceptions import ExceptionWatch
from relive.agent.failures.exits import ExitWatch
from relive.agent.failures.log_patterns import LogLines
from relive.agent.failures.ring_drain import InsideDrain
from relive.agent.failures.watch import FailureWatch
from relive.config import Settings
from relive.kernel import procfs
from relive.kernel.sockdiag import listening_ports
from relive.model.incident import Sighting
from relive.recording.events import Event
from relive.recording.packed_batch import load_packing
from relive.sandbox.border import remove_border
from relive.signals.client import TracerProcess

__all__ = ["Agent"]

# [s] after the service's end, for failures that were seen before it: their commits become durable.
_LAST_INCIDENTS = 300.0


class Agent:
    """See the module. Make it in the event loop after the service was started, then await ``run``."""

    def __init__(
        self,
        settings: Settings,
        capsule: Capsule,
        group: MemoryGroup | None,
        listener: int | None,
        tracer: TracerProcess | None = None,
    ) -> None:
        """Take these over.

        Args:
            listener: see ``file_tracking.hold_listener``; None: the service's files are not followed.
            tracer: one that was told to trace the service when that was started; None: none was.
        """
        facts = capsule.facts
        self._capsule = capsule
        self._group = group
        self._log = structlog.get_logger()
        self._protection = Protection()
        self._tasks = BackgroundTasks(self._protection)
        paths = capsule.paths
        self._keeper = CommitWriter(
            settings,
            facts.spec.name,
            facts.life,
            paths.logs,
            lambda: capsule.lead,
            protection=self._protection,
            inside=paths.inside,
        )
        self._listener = listener
        target = capsule_target(settings, capsule)
        committing = dumper_settings(settings, facts.spec.policy)
        dumper = CriuDumper(committing, lambda: present_target(capsule, target))
        self._footprint = recent_footprint(lambda: capsule.lead, settings.pre_copy_from)
        self._committer = Committer(
            dumper, capsule.paths, facts.spec.name, self._keeper, self._protection, self._tasks
        )
        self._failures = FailureWatch(
            settings, capsule, self._committer, self._keeper, self._tasks, group, tracer
        )
        self._exits = self._failures.exits = ExitWatch(
            settings, capsule, self._committer, self._keeper, self._failures
        )
        self._recorder = ProxySupervisor(
            settings, capsule, self._committer, self._tasks, self._failures.on_proxy_message
        )
        self._border = EgressSupervisor(settings, capsule, self._committer)
        self._supervisor = Supervisor(settings, capsule.paths)
        self._bounding = Bounding([*capsule.paths.logs, capsule.paths.agent_log], settings.output_keep)
        self._lines = self._log_lines(is_new=tracer is not None)
        self._inside = self._drain(settings) if facts.spec.inside else None

    def _log_lines(self, *, is_new: bool) -> LogLines | None:
        patterns = self._capsule.facts.spec.patterns
        if not patterns:
            return None

        def see(sighting: Sighting) -> None:
            self._tasks.begin(self._failures.see_line(sighting))

        return LogLines(self._capsule.paths.logs, patterns, see, is_new=is_new)

    def _drain(self, settings: Settings) -> InsideDrain:
        loop, paths, init = asyncio.get_running_loop(), self._capsule.paths, self._capsule.facts.init

        def look() -> None:
            drain.drain()

        exceptions = ExceptionWatch(settings, self._capsule, self._committer, self._keeper, self._tasks, look)
        self._failures.exceptions = exceptions

        def failed(event: Event) -> None:
            loop.call_soon_threadsafe(exceptions.on_failure_event, event)

        drain = InsideDrain(
            paths.rings.resolve(),
            paths.inside,
            beginnings=paths.beginnings,
            keep_bytes=settings.inside_keep,
            body_bytes=2 * settings.body_limit,  # a secret's placeholder can be longer than the secret
            is_alive=lambda pid, _made: procfs.exists_inside(init, pid),
            on_failure=failed,
            protection=self._protection,
            packing=load_packing(settings.tools_path),
        )
        self._tasks.start_guarded("exceptions", exceptions.watch)
        return drain

    async def run(self) -> None:
        """Serve until the capsule has ended and all about its end is written down."""
        server = await serve_control(self._capsule.paths.agent_socket, self._handle, self._committer.advance)
        ended = wait_for_end(self._capsule.facts.init, self._capsule.facts.init_started)
        try:
            for part, work in (
                ("failures", self._failures.watch_signals),
                ("memory", self._failures.watch_memory),
                ("exits", self._exits.watch),
                ("proxy", self._recorder.run),
                ("egress", self._border.run),
                ("policy", self._policy().run),
                ("supervisor", self._supervisor.keep_running),
                ("bounding", self._bounding.run),
                ("directory", lambda: end_with(self._capsule.paths.state)),
            ):
                self._tasks.start_guarded(part, work)
            self._tasks.begin(self._keeper.make_ready())
            if self._lines is not None:
                self._tasks.start_guarded("output", self._lines.follow)
            await ended
            if self._lines is not None:
                self._lines.poll()
            await self._failures.note_the_end()
            await self._tasks.finish(_LAST_INCIDENTS)
        finally:
            server.close()
            await self._shut_down()

    async def _shut_down(self) -> None:
        await self._tasks.end()
        await self._keeper.close_incidents()
        self._keeper.close()
        if self._committer.tracer is not None:
            await self._committer.tracer.close()
        await self._recorder.end()
        await self._border.end()
        border = self._capsule.facts.border
        if border is not None:
            await asyncio.to_thread(remove_border, border)
        if self._lines is not None:
            self._lines.close()
        if self._inside is not None:
            await asyncio.to_thread(self._inside.close)
            remove_rings(self._capsule.paths)
        self._committer.close()
        if self._listener is not None:
            os.close(self._listener)
        if self._group is not None:
            self._group.remove()
        paths = self._capsule.paths
        # What the service wrote is in its commits; its own layers went with its namespaces.
        shutil.rmtree(paths.layers, ignore_errors=True)
        paths.agent_socket.unlink(missing_ok=True)
        remove_unused()
        paths.closed.touch()
        await self._supervisor.end()
        paths.agent_pid.unlink(missing_ok=True)

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "commit":
                return await self._committer.commit_asked(request)
            case "stopping":
                self._failures.stop_asked = time.monotonic()
                return {}
            case "status":
                return {
                    "pending": self._keeper.pending,
                    "recording": self._committer.is_recording,
                    **await self._recorder.lacks(),
                    "troubles": self._protection.as_json(),
                }
        raise ValueError(f"no such operation: {request['op']}")

    def _policy(self) -> PolicyCommits:
        capsule, committer = self._capsule, self._committer
        spec, init = capsule.facts.spec, capsule.facts.init
        pace = committer.pace = CommitPace(
            spec.policy,
            self._footprint,
            lambda: ServiceCost(lambda: waited_for_processor(capsule.lead), committer.processor_time),
        )
        listens = None
        if spec.upstream is not None:
            port = spec.upstream[1]

            def listens() -> bool:
                return port in listening_ports(init)

        def changes() -> Changes:
            recordings = (capsule.paths.recording, capsule.paths.egress)
            return changes_of(spec.policy, lambda: capsule.lead, recordings)

        return PolicyCommits(spec.policy, committer, pace, capsule.paths.pace, listens, changes)

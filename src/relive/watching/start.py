"""One start of a watched container: what waits for its failures, until it ends or the watch does."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from relive.agent.capsule.exit_wait import wait_for_end
from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.agent.commits.changes import Changes, changes_of
from relive.agent.commits.commit_writer import CommitWriter
from relive.agent.commits.committer import Committer
from relive.agent.commits.pace import CommitPace, recent_footprint
from relive.agent.commits.policy import PolicyCommits
from relive.agent.commits.protection import Protection
from relive.agent.commits.service_cost import ServiceCost, waited_for_processor
from relive.agent.control.background import BackgroundTasks
from relive.agent.failures.exceptions import ExceptionWatch
from relive.agent.failures.log_patterns import LinePatterns
from relive.agent.failures.sightings import (
    exit_sighting,
    health_sighting,
    memory_sighting,
    unseen_end_sighting,
)
from relive.agent.failures.watch import FailureWatch
from relive.config import Settings
from relive.errors import ReliveError
from relive.kernel import procfs
from relive.kernel.sockdiag import listening_ports
from relive.model.commit import CommitId
from relive.model.incident import Sighting
from relive.recording.events import Event
from relive.watching.engine import Engine
from relive.watching.health import has_turned_bad, is_overdue
from relive.watching.life import Watch, service_of
from relive.watching.state import ContainerState, HealthCheck

__all__ = ["Common", "ContainerStart", "StartEnd", "wait_status"]

_LOOK_LEAST, _LOOK_MOST = 1.0, 10.0  # [s] between two looks at a container that has a health check
_BORN_SLACK_NS = 1_000_000_000  # a process's start is known to a tick of the clock, its time since boot read a moment later
_KILLED = 128 + 9
# [s] after its end, for failures that were seen before it: their commits become durable.
_LAST_INCIDENTS = 300.0


@dataclass(frozen=True, slots=True)
class Common:
    """What all starts of a container share."""

    settings: Settings
    watch: Watch
    engine: Engine
    keeper: CommitWriter
    committer: Committer
    protection: Protection
    look_inside: Callable[[], None] | None


@dataclass(frozen=True, slots=True)
class StartEnd:
    """How a start ended.

    Attributes:
        at: on the monotonic clock [s].
        status: raw wait status; None where nobody has seen it.
        kills: processes that were killed for want of memory in it.
        before: the last commit then.
    """

    at: float
    status: int | None
    kills: int
    before: CommitId | None


def wait_status(exit_code: int) -> int:
    """The raw wait status that an engine's exit code stands for; above 128 it is taken for a signal's."""
    return exit_code - 128 if 128 < exit_code < 128 + 65 else (exit_code & 0xFF) << 8


class ContainerStart:
    """Belongs to the agent's event loop. Make it for a container that runs, await ``run``, then ``report`` its end."""

    def __init__(self, common: Common, state: ContainerState) -> None:
        self._common = common
        self.state = state
        self.service: Capsule = service_of(common.watch, state)
        self._group = MemoryGroup.of_process(state.pid) if state.has_group else None
        self._tasks = BackgroundTasks(common.protection)
        self._log = structlog.get_logger()
        self._patterns = LinePatterns(common.watch.facts.spec.patterns)
        self._born_ns = self._seen_ns = _born_ns(state.pid)
        self.failures = FailureWatch(
            common.settings, self.service, common.committer, common.keeper, self._tasks, self._group
        )
        self._exceptions = self._watch_exceptions()

    def _watch_exceptions(self) -> ExceptionWatch | None:
        common = self._common
        if common.look_inside is None:
            return None
        watching = ExceptionWatch(
            common.settings, self.service, common.committer, common.keeper, self._tasks, common.look_inside
        )
        self.failures.exceptions = watching
        return watching

    def is_alive(self, pid: int, made_ns: int) -> bool:
        """Who made a ring then may still write to it; for ``InsideDrain``, in its thread."""
        facts = self.service.facts
        if procfs.is_same_process(facts.init, facts.init_started):
            self._seen_ns = time.monotonic_ns()
            # A container's process 1 is called 1 in each start.
            return made_ns > self._born_ns - _BORN_SLACK_NS and procfs.exists_inside(facts.init, pid)
        return made_ns > self._seen_ns  # the next start's, perhaps, of which nobody has told us yet

    def hear_exception(self, event: Event) -> None:
        """Take a ``failure`` event of the recorder inside."""
        if self._exceptions is not None:
            self._exceptions.on_failure_event(event)

    def hear_line(self, line: bytes, begin: int) -> None:
        """Take a line of the container's output; ``begin``: size of stderr's file when it began."""
        seen = self._patterns.seen_in(line, begin)
        if seen is not None:
            self._tasks.begin(self.failures.see_line(seen))

    # -- its life ------------------------------------------------------------------------------------------------

    async def run(self, stopping: asyncio.Event) -> StartEnd | None:
        """Watch until it has ended; None when the watch ended before."""
        spec = self._common.watch.facts.spec
        ended = wait_for_end(self.state.pid)
        stop = asyncio.ensure_future(stopping.wait())
        try:
            if spec.signals:
                self._tasks.start_guarded("failures", self.failures.watch_signals)
            self._tasks.start_guarded("memory", self.failures.watch_memory)
            if self._exceptions is not None:
                self._tasks.start_guarded("exceptions", self._exceptions.watch)
            if self.state.health is not None:
                self._tasks.start_guarded("health", self._watch_health)
            self._tasks.start_guarded("policy", self._policy().run)
            await asyncio.wait((ended, stop), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return None
            # At once: the engine removes the group with its counts.
            kills = self._group.kills() if self._group is not None else 0
            return StartEnd(
                time.monotonic(), self.failures.root_status, kills, await self._common.keeper.last()
            )
        finally:
            ended.cancel()
            stop.cancel()

    async def report(
        self, end: StartEnd, exit_code: int | None, *, wanted: bool, oom_killed: bool, is_final: bool = False
    ) -> Sighting | None:
        """Write its end down if it is a failure; what was seen is returned, also where it has an incident already.

        Args:
            exit_code: as its engine tells; None where it does not any more.
            wanted: somebody told its engine to stop it.
            is_final: nobody else can tell of it later, so that an end which was not seen is told as such.
        """
        status = self.failures.root_status if end.status is None else end.status
        if status is None and exit_code is not None:
            status = wait_status(exit_code)
        if status is None:
            self._log.warning("its end was not seen, and its engine does not tell its status")
            if is_final:
                await self.failures.report_end(unseen_end_sighting(time.time_ns()), end.before)
            return None
        sighting = exit_sighting(status, stop_asked=wanted, now_ns=time.time_ns())
        if sighting is not None and (oom_killed or (end.kills and sighting.signal == _KILLED - 128)):
            sighting = memory_sighting(max(end.kills, 1), time.time_ns(), _KILLED)
        await self.failures.report_end(sighting, end.before)
        return sighting

    async def close(self) -> None:
        """End what is left of watching it."""
        await self._tasks.finish(_LAST_INCIDENTS)
        committer = self._common.committer
        async with committer.lock:  # no commit is left half taken
            await self._tasks.end()
            tracer, committer.tracer = committer.tracer, None
        if tracer is not None:
            await tracer.close()

    # -- what is looked at ---------------------------------------------------------------------------------------

    def _policy(self) -> PolicyCommits:
        spec, pid = self._common.watch.facts.spec, self.state.pid
        listens = (lambda: bool(listening_ports(pid))) if spec.listen or self.state.ports else None
        committer = self._common.committer
        pace = committer.pace = CommitPace(
            spec.policy,
            recent_footprint(lambda: pid, self._common.settings.pre_copy_from),
            lambda: ServiceCost(lambda: waited_for_processor(pid), committer.processor_time),
        )
        paths = self._common.watch.paths

        def changes() -> Changes:
            return changes_of(spec.policy, lambda: pid, (paths.recording, paths.egress))

        return PolicyCommits(spec.policy, committer, pace, paths.pace, listens, changes)

    async def _watch_health(self) -> None:
        health = self.state.health
        assert health is not None
        pause = min(max(health.interval / 2, _LOOK_LEAST), _LOOK_MOST)
        since, ours, seen = time.time(), False, None
        while True:
            now = await self._look_at_health()
            if now is not None and self._runs_health and is_overdue(now, since, time.time(), ours=ours):
                ours = True
                await asyncio.to_thread(self._common.engine.check_health, self.state.id)
                now = await self._look_at_health()
            if now is not None:
                if has_turned_bad(seen, now):
                    await self.failures.report_and_commit(
                        health_sighting(now.streak, now.said, time.time_ns())
                    )
                seen = now
            await asyncio.sleep(pause)

    @property
    def _runs_health(self) -> bool:
        return self._common.watch.facts.spec.health

    async def _look_at_health(self) -> HealthCheck | None:
        try:
            return (await asyncio.to_thread(self._common.engine.inspect, self.state.id)).health
        except ReliveError as error:
            self._log.warning("the container's health is not known", error=error.as_json())
            return None


def _born_ns(pid: int) -> int:
    """When a process was started, on CLOCK_MONOTONIC; 0 when it is gone."""
    stat = procfs.read_stat(pid)
    if stat is None:
        return 0
    since_boot = stat.start_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return since_boot + time.monotonic_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

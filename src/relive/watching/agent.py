"""The agent of one watched container or service, from ``relive watch`` to ``relive stop`` or until the container is removed.

It goes from start to start of the container (see ``ContainerStart``). What outlasts a start is here: the commits and their keeper,
the recording proxy, the output, the drain of the rings. The container depends on none of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from relive.agent.capsule.log_rotation import Bounding
from relive.agent.capsule.supervisor import Supervisor
from relive.agent.commits.commit_writer import CommitWriter
from relive.agent.commits.committer import Committer
from relive.agent.commits.dumper import dumper_settings
from relive.agent.commits.protection import Protection
from relive.agent.control.background import BackgroundTasks
from relive.agent.control.proxy_supervisor import ProxySupervisor
from relive.agent.control.removal import end_with
from relive.agent.control.server import serve_control
from relive.agent.failures.ring_drain import InsideDrain
from relive.agent.failures.sightings import loop_sighting
from relive.config import Settings
from relive.errors import HostIncapable, ReliveError, TargetUnknown
from relive.model.incident import Sighting
from relive.recording.events import Event
from relive.recording.packed_batch import load_packing
from relive.watching.engine import Engine, OutputTarget
from relive.watching.life import Watch, service_of
from relive.watching.public_port import PublicPort
from relive.watching.restarts import Restarts
from relive.watching.rings import remove_place
from relive.watching.start import Common, ContainerStart, StartEnd
from relive.watching.state import ContainerState

__all__ = ["ContainerAgent"]

_IDLE_LEAST, _IDLE_MOST = 0.05, 1.0  # [s] between two looks at a container that does not run
_SETTLED_LIMIT = 15.0  # [s] for an engine to notice that a container has ended
_SILENCE = 1.0  # [s] before an engine that did not answer is asked again
_OUTPUT_LIMIT = 3.0  # [s] for the last of the output to arrive


class ContainerAgent:
    """See the module. Make it in the event loop, then await ``run``."""

    def __init__(self, settings: Settings, watch: Watch, engine: Engine) -> None:
        facts, paths = watch.facts, watch.paths
        self._settings = settings
        self._watch = watch
        self._engine = engine
        self._log = structlog.get_logger()
        self._protection = Protection()
        self._tasks = BackgroundTasks(self._protection)
        self._stopping = asyncio.Event()
        self._starts = asyncio.Event()
        self._start: ContainerStart | None = None
        self._restarts = Restarts()
        self._is_over = self._is_gone = False
        self._failed: tuple[StartEnd, Sighting] | None = None
        self._keeper = CommitWriter(
            settings,
            facts.name,
            facts.id,
            paths.logs,
            self._root,
            protection=self._protection,
            inside=paths.inside,
        )
        self._dumper = engine.dumper(
            dumper_settings(settings, facts.spec.policy), facts.id, facts.name, paths
        )
        self._committer = Committer(
            self._dumper, paths, facts.name, self._keeper, self._protection, self._tasks
        )
        service = service_of(watch)
        has_port = service.facts.spec.has_front
        self._port = PublicPort(settings, service.facts.spec, paths) if has_port else None
        self._recorder = ProxySupervisor(
            settings,
            service,
            self._committer,
            self._tasks,
            self._hear_proxy,
            has_front=has_port,
            has_starts=True,
        )
        self._supervisor = Supervisor(settings, paths)
        self._bounding = Bounding([*paths.logs, paths.agent_log], settings.output_keep)
        self._drain = self._drain_rings(Path(facts.rings)) if facts.rings is not None else None
        target = OutputTarget(paths.logs, paths.output_position, facts.began, self._hear_line)
        self._output = engine.output(facts.id, target)

    def _drain_rings(self, rings: Path) -> InsideDrain:
        loop, paths, settings = asyncio.get_running_loop(), self._watch.paths, self._settings

        def is_alive(pid: int, made_ns: int) -> bool:
            return self._start is None or self._start.is_alive(pid, made_ns)

        def failed(event: Event) -> None:
            loop.call_soon_threadsafe(self._hear_exception, event)

        return InsideDrain(
            rings,
            paths.inside,
            beginnings=paths.beginnings,
            keep_bytes=settings.inside_keep,
            body_bytes=2 * settings.body_limit,  # a secret's placeholder can be longer than the secret
            is_alive=is_alive,
            on_failure=failed,
            protection=self._protection,
            packing=load_packing(settings.tools_path),
        )

    def _root(self) -> int | None:
        return None if self._start is None else self._start.state.pid

    # -- what is heard -------------------------------------------------------------------------------------------

    def _hear_proxy(self, message: dict[str, Any]) -> None:
        if self._start is not None:
            self._start.failures.on_proxy_message(message)

    def _hear_exception(self, event: Event) -> None:
        if self._start is not None:
            self._start.hear_exception(event)

    def _hear_line(self, line: bytes, begin: int) -> None:
        if self._start is not None:
            self._start.hear_line(line, begin)

    # -- from start to start -------------------------------------------------------------------------------------

    async def run(self, ready: Callable[[], None]) -> None:
        """Watch until that is ended, or the container is gone; ``ready`` is called when it takes commands."""
        server = await serve_control(self._watch.paths.agent_socket, self._handle, self._committer.advance)
        self._open_port()
        ready()
        try:
            if self._port is not None:
                self._tasks.start_guarded("port", self._port.keep_open)
            self._tasks.begin(self._keeper.make_ready())
            self._tasks.start_guarded("proxy", self._recorder.run)
            self._tasks.start_guarded("output", lambda: self._output.follow(self._starts))
            self._tasks.start_guarded("supervisor", self._supervisor.keep_running)
            self._tasks.start_guarded("bounding", self._bounding.run)
            self._tasks.start_guarded("directory", lambda: end_with(self._watch.paths.watch))
            await self._go_from_start_to_start()
            self._is_over = True
        except TargetUnknown:
            self._log.info("the container was removed")
            self._is_over = self._is_gone = True
        finally:
            server.close()
            await self._shut_down()

    def _open_port(self) -> None:
        """Before there is a proxy, which gets the listener from there. What hinders it may pass: it is tried again."""
        if self._port is not None:
            try:
                self._port.open()
            except (ReliveError, OSError) as error:
                self._log.error("the public port is not open yet", cause=str(error))

    async def _go_from_start_to_start(self) -> None:
        state: ContainerState | None = None
        while not self._stopping.is_set():
            if state is None or not state.is_running:
                state = await self._next_start()
                if state is None:
                    return
            state = await self._watch_start(state)

    async def _next_start(self) -> ContainerState | None:
        """Wait until the container runs; None when the watch is to end."""
        pause = _IDLE_LEAST
        while not self._stopping.is_set():
            state = await self._look()
            if state is None or state.is_running:
                return state
            if state.is_final:
                self._log.info("it has ended for good")
                return None
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                pause = min(pause * 2, _IDLE_MOST)
        return None

    async def _watch_start(self, state: ContainerState) -> ContainerState | None:
        """Watch one start to its end; returns how the container was after it, None when the watch is to end."""
        start = self._start = ContainerStart(self._common(), state)
        await self._recorder.attend(state.pid)
        await asyncio.to_thread(self._dumper.begin, state.pid)
        self._keeper.learn()
        self._log.info("watching a start", pid=state.pid, started=state.started)
        await self._note_restart()
        self._starts.set()
        try:
            end = await start.run(self._stopping)
            if end is None:
                return None
            after = await self._after(state)
            if after is not None:
                await self._write_end(start, end, after)
            return after
        finally:
            await start.close()
            await self._recorder.leave()

    def _common(self) -> Common:
        look = self._drain.drain if self._drain is not None else None
        return Common(
            self._settings, self._watch, self._engine, self._keeper, self._committer, self._protection, look
        )

    async def _look(self) -> ContainerState | None:
        """How the container is, as soon as its engine answers; None when the watch is to end before that."""
        while not self._stopping.is_set():
            try:
                return await asyncio.to_thread(self._engine.inspect, self._watch.facts.id)
            except HostIncapable as error:  # it may be on its way through an upgrade
                self._log.warning("the engine does not answer", error=error.as_json())
                await asyncio.sleep(_SILENCE)
        return None

    async def _after(self, before: ContainerState) -> ContainerState | None:
        """How the container is once its engine has noticed the end; None when the watch is to end before that."""
        until = time.monotonic() + _SETTLED_LIMIT
        while True:
            state = await self._look()
            if state is None or not state.is_running or state.pid != before.pid or time.monotonic() > until:
                return state
            await asyncio.sleep(_IDLE_LEAST)

    async def _write_end(self, start: ContainerStart, end: StartEnd, after: ContainerState) -> None:
        try:
            await asyncio.wait_for(self._output.idle.wait(), _OUTPUT_LIMIT)
        except TimeoutError:
            self._log.warning("the last of the output has not arrived")
        if self._drain is not None:
            await asyncio.to_thread(self._drain.drain)
        # The exit code is that of the last start: of this one only where none has followed.
        exit_code = after.exit_code if not after.is_running else None
        if exit_code is None:
            exit_code = await asyncio.to_thread(self._engine.last_exit, after.id, start.state.started)
        wanted = bool(after.stopped_by_user) and not after.is_running
        sighting = await start.report(
            end, exit_code, wanted=wanted, oom_killed=after.oom_killed, is_final=after.is_final
        )
        self._log.info("a start ended", status=end.status, exit_code=exit_code, failed=sighting is not None)
        self._failed = (end, sighting) if sighting is not None else None

    async def _note_restart(self) -> None:
        """A start follows another: that is an incident of its own if it happens again and again after failures."""
        failed, self._failed = self._failed, None
        if failed is None:
            return
        end, sighting = failed
        loop = self._restarts.note(end.at, end.before)
        if loop is not None:
            seen = loop_sighting(loop.times, loop.seconds, sighting.exit_status or 0, time.time_ns())
            await self._keeper.report(seen, None, before=loop.before)

    # -- commands ------------------------------------------------------------------------------------------------

    async def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["op"]:
            case "commit":
                return await self._committer.commit_asked(request)
            case "end":
                self._stopping.set()
                return {}
            case "status":
                state = self._start.state if self._start is not None else None
                return {
                    "pending": self._keeper.pending,
                    "recording": self._committer.is_recording,
                    **await self._recorder.lacks(),
                    "pid": state.pid if state is not None else 0,
                    "troubles": self._protection.as_json(),
                }
        raise ValueError(f"no such operation: {request['op']}")

    async def _shut_down(self) -> None:
        await self._tasks.end()
        await self._keeper.close_incidents()
        self._keeper.close()
        if self._is_over and self._port is not None:
            self._port.close()
        await self._recorder.end()
        if self._drain is not None:
            await asyncio.to_thread(self._drain.close)
        self._committer.close()
        if self._is_gone and self._watch.facts.rings is not None:
            remove_place(self._settings, Path(self._watch.facts.rings))  # its container is gone
        paths = self._watch.paths
        paths.agent_socket.unlink(missing_ok=True)
        if self._is_over:  # else it failed, and the next command starts another
            paths.rings.unlink(missing_ok=True)
            paths.closed.touch()
            await self._supervisor.end()
        paths.agent_pid.unlink(missing_ok=True)

"""Taking commits of one target, one at a time, with the failure watch out of the way and the recording's gate closed.

How a commit is taken is the ``Dumper``'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import structlog

from relive.agent.commits.commit_writer import CommitWriter
from relive.agent.commits.dumper import DumpedCommit, Dumper
from relive.agent.commits.pace import CommitPace
from relive.agent.commits.protection import Protection
from relive.agent.commits.service_cost import processor_time
from relive.agent.commits.tracer_aside import TracerAside
from relive.agent.control.background import BackgroundTasks
from relive.agent.control.packet_gate import PacketGate
from relive.agent.control.proxy_client import BothGates, ProxyGate, ProxyLink
from relive.agent.control.supervised_process import ProcessSupervisor
from relive.checkpoint.criu import CriuDied
from relive.checkpoint.dump import Aside
from relive.checkpoint.request_gate import RequestGate
from relive.checkpoint.target import StoppedBy
from relive.config import STORE_KEY, give_store_keys
from relive.errors import DiskFull, ReliveError
from relive.model.commit import Trigger
from relive.model.life_paths import LifePaths
from relive.signals.client import TracerClient
from relive.store import StoredCommit

__all__ = ["Committer", "RateLimit"]

_PENDING_POLL = 0.002  # [s]
_BEGINS_WITHIN = 3.0  # [s] a recorder is waited for
_PART = "commits"
_RETRY_MOST = 60.0  # [s]


class Committer:
    """Belongs to the agent's event loop. Commits are taken in a thread, one at a time.

    Attributes:
        tracer: the failure watch, which has to step aside for CRIU; None while there is none.
        proxy: the recording proxy; None without one. border: the recorder of what the service asks of others; None without one.
        border_has_begun: waits until that recorder is there for what was said by now; None: it is in the way, and always is.
        beside: the service's port, where ``proxy`` records beside the way.
        pace: is told of each pause, and of what each commit brings the store; None: nobody asks.
        advance: how far the commits are that are under way.
        criu_died_at: monotonic [s], when CRIU last ended without an answer in the middle of a commit.
    """

    def __init__(
        self,
        dumper: Dumper,
        paths: LifePaths,
        name: str,
        keeper: CommitWriter,
        protection: Protection,
        tasks: BackgroundTasks,
    ) -> None:
        self._dumper = dumper
        self.advance = dumper.advance
        self._paths = paths
        self._keeper = keeper
        self._protection = protection
        self._log = structlog.get_logger().bind(service=name)
        self.lock = asyncio.Lock()
        self.criu_died_at = float("-inf")
        self._named: dict[str, asyncio.Task[StoredCommit]] = {}
        self.tracer: TracerClient | None = None
        self.proxy: ProcessSupervisor | None = None
        self.border: ProcessSupervisor | None = None
        self.border_has_begun: Callable[[], Awaitable[None]] | None = None
        self.beside: int | None = None
        self._has_awaited_recorder = False
        self.pace: CommitPace | None = None
        self._tasks = tasks
        self._releasing: asyncio.Task[None] | None = None

    async def commit(self, trigger: Trigger, name: str | None = None) -> StoredCommit:
        """Take a commit and wait until it is durable.

        With a name (see ``checkpoint.dump``) only one is taken, however often it is asked for: who asks again, because whoever
        asked first has died over it, gets the same.
        """
        if name is None:
            return await self.store(await self.capture(trigger))
        if name not in self._named:
            self._named[name] = asyncio.create_task(self._commit_once(trigger, name))
            self._named[name].add_done_callback(lambda _task: self._named.pop(name))
        return await asyncio.shield(self._named[name])

    async def commit_asked(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The request ``commit`` of the control socket, as ``agent.control.server`` specifies it."""
        if STORE_KEY in request:  # for an agent that was started without
            give_store_keys(request[STORE_KEY])
        stored = await self.commit(Trigger(request.get("trigger", "manual")), request.get("capture"))
        return {"id": stored.id, "pause_us": stored.pause_us, "durable_us": stored.durable_us}

    def processor_time(self) -> float:
        """Seconds of a processor that this agent has used, and what tracks its target, if that is there."""
        return processor_time(self._dumper.tracker_pid)

    @property
    def is_contended(self) -> bool:
        """When commits were stored last, other work took the processors."""
        return self._keeper.is_contended

    @property
    def is_recording(self) -> bool:
        """The recording proxy is there, and the line to it is open."""
        link = self.proxy.link if self.proxy is not None else None
        return link is not None and link.is_open

    async def _commit_once(self, trigger: Trigger, name: str) -> StoredCommit:
        async with self.lock:
            taken = await self._keeper.captured_as(name)
        return taken or await self.store(await self.capture(trigger, name=name))

    async def store(self, taken: DumpedCommit, written: Callable[[], None] = lambda: None) -> StoredCommit:
        """Make durable what ``capture`` took; ``written`` is called when only the disk is waited for.

        Raises:
            DiskFull, StoreError: it could not be stored.
        """
        async with self._disk_given_back():
            stored = await self._keeper.store(taken, written)
        if self.pace is not None:
            self.pace.stored(stored.new_bytes)
        self._protection.works(_PART)
        self._log.info("durable", commit=stored.id, durable_us=stored.durable_us, bytes=stored.new_bytes)
        return stored

    @contextlib.asynccontextmanager
    async def _disk_given_back(self) -> AsyncIterator[None]:
        """Where the disk is full nothing is held on it until there is room again: what else writes there needs it more.

        That is begun and not waited for: the commit writer does it after all that it was asked for before, and a process may be
        stopped until this returns.
        """
        try:
            yield
        except DiskFull:
            if self._releasing is None or self._releasing.done():
                self._releasing = self._tasks.begin(self._keeper.release_disk())
            raise

    def failed(self, error: Exception, longest: float = 0.0) -> float:
        """A commit that nobody waits for was not taken or not stored, for whatever reason; returns seconds until the next try.

        Args:
            longest: seconds between two tries, where that may be more than a minute.
        """
        details = {"error": error.as_json()} if isinstance(error, ReliveError) else {"exc_info": error}
        pause = self._protection.failed(_PART, error, max(longest, _RETRY_MOST))
        self._log.error("commit failed", pause=pause, **details)
        return pause

    async def capture(
        self, trigger: Trigger, stopped: StoppedBy | None = None, name: str | None = None
    ) -> DumpedCommit:
        """Take a commit that is not yet durable; waits while too many are in that state.

        Raises:
            CommitFailed, ProcessGone, DiskFull: as ``checkpoint.dump.capture``.
        """
        while self._keeper.is_full and stopped is None:
            await asyncio.sleep(_PENDING_POLL)
        if trigger is Trigger.MANUAL:
            await self._recording_begun()
        async with self.lock:
            if self.tracer is None:
                return await self._capture_now(trigger, stopped, name, contextlib.nullcontext)
            aside = TracerAside(self.tracer, asyncio.get_running_loop())
            try:
                return await self._capture_now(trigger, stopped, name, aside)
            finally:
                if aside.is_lost:
                    self.tracer = None  # its loop starts another

    async def _capture_now(
        self, trigger: Trigger, stopped: StoppedBy | None, name: str | None, aside: Aside
    ) -> DumpedCommit:
        loop = asyncio.get_running_loop()
        gate = BothGates(
            self._inward_gate(loop),
            ProxyGate(self._link(self.border), loop, self._paths.egress),
        )
        async with self._disk_given_back():
            try:
                taken = await asyncio.to_thread(self._dumper.dump, trigger, gate, stopped, name, aside)
            except ReliveError as error:
                if _is_of_dead_criu(error):
                    self.criu_died_at = time.monotonic()
                raise
        if self.pace is not None and stopped is None:
            self.pace.note(taken.pause_us, taken.full_because, taken.written_pages)
        self._log.info(
            "committed",
            capture=taken.name,
            trigger=trigger.value,
            pause_us=taken.pause_us,
            micro=taken.is_micro,
            **({"full_because": taken.full_because} if taken.full_because is not None else {}),
            pages=taken.written_pages,
        )
        return taken

    async def _recording_begun(self) -> None:
        """Wait for a while until requests are recorded: the first commit of a service may be asked for sooner.

        Without that it has no place among the requests. Commits by the clock begin later, and those of a failure do not wait. A
        recorder that does not come is waited for once.
        """
        if self._has_awaited_recorder or self.beside is None:
            return
        until = time.monotonic() + _BEGINS_WITHIN
        while not self.is_recording and time.monotonic() < until:
            await asyncio.sleep(_PENDING_POLL)
        self._has_awaited_recorder = True
        if not self.is_recording:
            self._log.warning("a commit has no place among the requests: they are not recorded yet")

    def _inward_gate(self, loop: asyncio.AbstractEventLoop) -> RequestGate:
        link = self._link(self.proxy)
        if self.beside is not None:
            return PacketGate(link, loop, self.beside)
        return ProxyGate(link, loop, self._paths.recording)

    async def catch_up(self) -> None:
        """Wait until what was said by now is recorded; who is in the way records it before it is said."""
        inward = self._link(self.proxy) if self.beside is not None else None
        outward = None
        if self.border_has_begun is not None:
            await self.border_has_begun()
            outward = self._link(self.border)
        for link in (inward, outward):
            if link is not None:
                with contextlib.suppress(ConnectionError, TimeoutError):
                    await link.ask("catch-up")

    def is_ready(self, ready: bool) -> None:
        """Whether the service is past its start; what fails before that is marked so."""
        self._keeper.is_ready = ready

    @staticmethod
    def _link(attendant: ProcessSupervisor | None) -> ProxyLink | None:
        return attendant.link if attendant is not None else None

    def close(self) -> None:
        """Let go of what taking commits holds."""
        self._dumper.close()


def _is_of_dead_criu(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, CriuDied):
        error = error.__cause__
    return error is not None


class RateLimit:
    """Lets the same thing happen once in a while only: the first time, and again after a pause without."""

    def __init__(self, pause: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = pause
        self._clock = clock
        self._last: dict[str, float] = {}

    def allows(self, what: str) -> bool:
        """It may happen now, and is counted as happening."""
        now = self._clock()
        last = self._last.get(what)
        if last is not None and now - last < self._pause:
            return False
        self._last[what] = now
        return True

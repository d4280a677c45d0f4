"""Seeing failures, each at its moment: fatal signals, failing requests, kills for want of memory, the service's end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from typing import Any

import structlog

from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.agent.commits.commit_writer import CommitWriter
from relive.agent.commits.committer import Committer, RateLimit
from relive.agent.commits.dumper import DumpedCommit
from relive.agent.control.background import BackgroundTasks
from relive.agent.failures.exceptions import ExceptionWatch
from relive.agent.failures.exits import ExitWatch
from relive.agent.failures.last_death import LastDeath
from relive.agent.failures.memory_pressure import Pressure
from relive.agent.failures.sightings import (
    answer_sighting,
    broken_sighting,
    exit_sighting,
    fatal_sighting,
    hang_sighting,
    is_due_to_stop,
    memory_sighting,
    sender_of,
    shell_status,
    worker_end_sighting,
)
from relive.checkpoint.target import StoppedBy
from relive.config import Settings
from relive.errors import CapsuleError, RecordingError, ReliveError
from relive.kernel import procfs
from relive.kernel.return_addresses import callers_of
from relive.model.commit import CommitId, Trigger
from relive.model.incident import FailureKind, Incident, Sighting
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording
from relive.signals.client import TracerClient, TracerProcess
from relive.signals.messages import Exited, Fatal
from relive.signals.signals import CRASH_SIGNALS

__all__ = ["FailureWatch", "hold_limit"]

_LATE_NS = 10_000_000_000  # a commit so long after a failure does not show the service at it
_MEMORY_POLL = 1.0  # [s] the longest time between two looks at the group
_MEMORY = "little memory"
_PRESSED_COUNTS = 5.0  # [s] after it was little last, a kill is of that
_TRACER_PAUSE = 1.0  # [s] between tries to watch a service for signals
_HOLD_MORE = 20.0  # [s]
_SETTLE = 0.3  # [s] after the service's end, for the proxy's last words to arrive

_WORKER_LIVES = 1.0  # [s] a process that lived less, of whose end nobody saw how, was a helper that was done
# What ends a process that nobody asked to end; others are how supervisors and timers end theirs.
_UNASKED = CRASH_SIGNALS | {signal.SIGKILL}

MakeSighting = Callable[[dict[str, Any], int], Sighting]


def hold_limit(settings: Settings) -> float:
    """Seconds for which a process may stand before its death: one commit may be under way, and its own comes after that."""
    return 2 * settings.commit_limit + _HOLD_MORE


class FailureWatch:
    """Belongs to the agent's event loop.

    Args:
        tracer: one that was told to trace the service when that was started.

    Attributes:
        exits: sees processes that are about to exit with a failure; None where nobody holds them.
        exceptions: sees those that the recorder inside tells of; None where there is none.
        stop_asked: when the service was asked to end, monotonic [s], so that its end is no failure; None: it was not.
        root_status: raw wait status of the service's root, where the tracer has seen it end; None before and else.
    """

    def __init__(
        self,
        settings: Settings,
        capsule: Capsule,
        committer: Committer,
        keeper: CommitWriter,
        tasks: BackgroundTasks,
        group: MemoryGroup | None,
        tracer: TracerProcess | None = None,
    ) -> None:
        self._capsule = capsule
        self._committer = committer
        self._keeper = keeper
        self._tasks = tasks
        self._group = group
        self._started = tracer
        self._hold_limit, self._may_fork = hold_limit(settings), settings.fork_server
        self._limit = RateLimit(settings.incident_pause)
        self._log = structlog.get_logger()
        self._seeing = asyncio.Lock()
        self._death = LastDeath()
        self._lead = capsule.facts.root
        self._lead_status: int | None = None  # raw, of the last one at the head whose end was seen
        self._catching = asyncio.Lock()
        self._kills = group.kills() if group is not None else 0
        # What was committed when memory had become little, and when it was little last, monotonic [s].
        self._pressed: asyncio.Task[CommitId | None] | None = None
        self._pressed_at = float("-inf")
        self._killed_for_memory = float("-inf")  # monotonic [s]
        self.root_status: int | None = None
        self.stop_asked: float | None = None
        self.exceptions: ExceptionWatch | None = None
        self.exits: ExitWatch | None = None

    @property
    def is_due_to_stop(self) -> bool:
        """Whatever ends now may have been asked to."""
        return is_due_to_stop(self.stop_asked, time.monotonic())

    # -- fatal signals -------------------------------------------------------------------------------------------

    async def watch_signals(self) -> None:
        """Catch fatal signals until the capsule ends; a tracer that was killed is replaced."""
        while self._capsule.is_alive:
            async with self._committer.lock:
                tracer = self._committer.tracer = await self._new_tracer()
            if tracer is None:
                await asyncio.sleep(
                    _TRACER_PAUSE
                )  # something else traces it, such as a CRIU that is about to end
                continue
            async for event in tracer.events():
                if isinstance(event, Fatal):
                    async with self._catching:
                        await self._catch(tracer, event)
                elif isinstance(event, Exited):
                    await self._hear_end(tracer, event)
            async with self._committer.lock:
                self._committer.tracer = None
            await tracer.close()

    async def _hear_end(self, tracer: TracerClient, event: Exited) -> None:
        self._log.info("process ended", pid=event.pid, status=event.status, comm=event.comm)
        if event.pid == self._capsule.facts.root:
            self.root_status = event.status
        elif event.pid != self._lead and (
            event.signal in _UNASKED or (event.status is None and event.seconds >= _WORKER_LIVES)
        ):
            self._tasks.begin(self._see_worker_end(event))
        if event.pid == self._lead:
            self._lead_status = event.status
            await self._follow_lead(tracer)

    async def _see_worker_end(self, event: Exited) -> None:
        """A process died, or is gone after a commit: an incident, unless it went with the whole service."""
        now = time.time_ns()
        await asyncio.sleep(_SETTLE)
        name = procfs.name_of(self._capsule.lead)
        asked = is_due_to_stop(self.stop_asked, time.monotonic())
        if name is None or asked:
            return
        if event.signal == signal.SIGKILL and self._was_for_want_of_memory():
            return  # ``watch_memory`` tells of it
        await self.report(worker_end_sighting(event.signal, event.comm, event.inside, name, now), None)

    def _was_for_want_of_memory(self) -> bool:
        """The kernel killed a process of the service for that since a moment before, or right now."""
        if self._group is not None and self._group.kills() > self._kills:
            return True
        return time.monotonic() - self._killed_for_memory < 2 * _MEMORY_POLL

    async def _new_tracer(self) -> TracerClient | None:
        tracer = await self._first_tracer() or await TracerClient.start(
            self._hold_limit, may_fork=self._may_fork
        )
        try:
            self._lead = self._capsule.lead
            for pid in self._capsule.heads() or [
                self._lead
            ]:  # daemons without a common parent are watched, each
                await tracer.attach(pid)
        except ReliveError as error:
            # Without it, fatal signals are only seen when the service has ended.
            self._log.warning("not watching for signals", error=error.as_json())
            await tracer.close()
            return None
        return tracer

    async def _first_tracer(self) -> TracerClient | None:
        """The one that was started before the service, unless what it was to trace is gone by now."""
        process, self._started = self._started, None
        if process is not None:
            with contextlib.suppress(ReliveError):
                return await TracerClient.adopt(process)
        return None

    async def _follow_lead(self, tracer: TracerClient) -> None:
        """The process at the head has ended; a daemon that it left is traced already, and is found again after each commit."""
        lead = self._capsule.lead
        if lead != self._lead and self._capsule.is_alive:
            self._lead = lead
            with contextlib.suppress(ReliveError):
                await tracer.attach(lead)

    async def _catch(self, tracer: TracerClient, event: Fatal) -> None:
        """Commit the process that stands before its death, then let it die."""
        seen_ns = time.time_ns()
        pid = procfs.innermost_pid(event.pid) or event.pid
        thread = procfs.innermost_pid(event.tid) or event.tid
        lead = self._capsule.lead
        is_head = event.pid in (lead, self._capsule.facts.root)
        self._death.begin(event.signal, is_head=is_head)
        worker_of = procfs.name_of(lead) if not is_head else None
        sender = self._sender(event, pid)
        callers = callers_of(event.pid, event.tid, event.kept)
        taken: DumpedCommit | None = None
        try:
            taken = await self._committer.capture(
                Trigger.INCIDENT, StoppedBy(event.signal, event.pid, event.tid)
            )
        except ReliveError as error:
            self._log.error("commit at the signal failed", error=error.as_json())
        with contextlib.suppress(CapsuleError):
            released = await tracer.release()
            if released.died and event.pid == self._capsule.facts.root:
                self.root_status = event.signal  # it is not traced any more when it dies
        self._death.let_go()
        at = await self.keep(taken)
        requests, known = await self.about_open_requests(taken)
        sighting = fatal_sighting(
            event.signal,
            event.code_name,
            event.address,
            event.comm,
            pid,
            thread,
            requests,
            seen_ns,
            worker_of=worker_of,
            sender=sender,
        )
        await self.report(sighting.model_copy(update={**known, "callers": callers}), at)

    def _sender(self, event: Fatal, receiver: int) -> tuple[str | None, bool]:
        if event.sender is None:
            return None, False
        heads = self._capsule.heads() or [self._capsule.facts.root]
        tree = (pid for head in heads for pid in procfs.tree_of(head))
        members = {procfs.innermost_pid(pid) or pid: procfs.name_of(pid) or "?" for pid in tree}
        own = len(procfs.namespace_pids(event.pid)) > 1
        return sender_of(event.code_name, event.sender, receiver, members, own_namespace=own)

    # -- requests ------------------------------------------------------------------------------------------------

    def on_proxy_message(self, message: dict[str, Any]) -> None:
        """Take a message of the proxy about a request. It may be late: what nobody could hear waits for the next agent."""
        now = int(message.get("wall_ns", time.time_ns()))
        match message.get("op"):
            case "answered":
                self._tasks.begin(self._see_request(answer_sighting, message, now))
            case "unanswered":
                self._tasks.begin(self._see_request(hang_sighting, message, now))
            case "broken" if not message.get("reused"):
                # A connection that had served before may just have been closed for idleness as the request came.
                self._tasks.begin(self._see_broken(message, now))

    async def _see_broken(self, message: dict[str, Any], now_ns: int) -> None:
        # When the service died, that is the incident; its broken answers only tell which requests it took along.
        await asyncio.sleep(_SETTLE)
        is_of_an_exit = self.exits is not None and self.exits.has_just_seen_one()
        began = (await self._about_request(message["request"])).get("began_wall_ns")
        if self._death.breaks(began) or is_of_an_exit:
            return
        if procfs.exists(self._capsule.lead):
            await self._see_request(broken_sighting, message, now_ns)

    async def _see_request(self, make: MakeSighting, message: dict[str, Any], now_ns: int) -> None:
        """A failure of a service that runs on: commit at it, unless the same failure had a commit a moment ago."""
        told = self.exceptions if make is not hang_sighting else None
        if told is not None and await told.has_told(message["request"]):
            return
        # One after the other, so that what was seen first is written down first.
        async with self._seeing:
            about = await self._about_request(message["request"])
            incident = await self._commit_and_report(make(message | about, now_ns))
            if told is not None:
                told.note_answer(message["request"], incident.number)

    async def report_and_commit(self, sighting: Sighting) -> None:
        """Another failure of a service that runs on, such as a health check that fails: commit at it, as for a request."""
        async with self._seeing:
            await self._commit_and_report(sighting)

    async def see_line(self, sighting: Sighting) -> None:
        """A line of its output stands for a failure; none of its own where an exception was told at the same moment."""
        if self.exceptions is not None and await self.exceptions.told_at(sighting.seen_wall_ns):
            return
        await self.report_and_commit(sighting)

    async def _commit_and_report(self, sighting: Sighting) -> Incident:
        at: CommitId | None = None
        is_late = time.time_ns() - sighting.seen_wall_ns > _LATE_NS
        if not is_late and self._limit.allows(sighting.fingerprint) and not self._keeper.is_known(sighting):
            try:
                at = (await self._committer.commit(Trigger.INCIDENT)).id
            except ReliveError as error:
                self._log.error("commit at the failure failed", error=error.as_json())
        return await self.report(sighting, at)

    async def about_open_requests(self, taken: DumpedCommit | None) -> tuple[list[int], dict[str, Any]]:
        """Numbers of the requests that were being served at a commit, and what a sighting is to hold of them.

        Of several any can be to blame: the oldest one's commit is before them all.
        """
        cursor = taken.cursor if taken is not None else None
        requests = sorted(one.request for one in cursor.open_requests) if cursor is not None else []
        about = await self._about_request(requests[0]) if requests else {}
        return requests, {key: about.get(key) for key in ("sequence", "began_wall_ns", "log_begin")}

    async def _about_request(self, number: int) -> dict[str, Any]:
        """What the recording holds of a request; empty when it holds nothing."""
        return await asyncio.to_thread(self._look_up_request, number)

    def _look_up_request(self, number: int) -> dict[str, Any]:
        try:
            exchange = Exchanges(Recording(self._capsule.paths.recording)).by_number(number)
        except RecordingError:
            return {}
        log = str(self._capsule.paths.logs[-1])
        return {
            "method": exchange.method,
            "target": exchange.target,
            "sequence": exchange.started_seq,
            "began_wall_ns": exchange.started_wall_ns,
            "log_begin": exchange.log_offsets_before.get(log),
        }

    # -- memory and end ------------------------------------------------------------------------------------------

    async def watch_memory(self) -> None:
        """Commit before memory runs out, and see processes killed for want of it while the service itself lives on."""
        if self._group is None:
            return
        self._kills = self._group.kills()
        pressure = Pressure(self._group)
        try:
            while True:
                await pressure.wait()
                kills, before = self._group.kills(), self._kills
                self._kills = kills
                if kills > before:
                    self._killed_for_memory = time.monotonic()
                if kills > before and procfs.exists(self._capsule.lead):
                    await self._report_memory(memory_sighting(kills - before, time.time_ns()))
                # In a unit's own group the agent is at home too: what a commit takes might be what the service lacks then.
                if self._group.is_ours and pressure.is_due():
                    self._pressed = await self._commit_before_memory_ends()
                if pressure.is_high:
                    self._pressed_at = time.monotonic()
        finally:
            pressure.close()

    async def _commit_before_memory_ends(self) -> asyncio.Task[CommitId | None] | None:
        if not self._limit.allows(_MEMORY):
            return None
        try:
            taken = await self._committer.capture(Trigger.INCIDENT)
        except ReliveError as error:
            self._log.error("commit before memory ran out failed", error=error.as_json())
            return None
        self._log.info("little memory is left", commit=taken.name)
        return asyncio.create_task(self.keep(taken))

    async def _report_memory(self, sighting: Sighting) -> None:
        """With what was committed when little was left: what was taken before may be hours away from the kill."""
        at: CommitId | None = None
        if self._pressed is not None and time.monotonic() - self._pressed_at < _PRESSED_COUNTS:
            at = await self._pressed
        await self.report(sighting, at, at)

    async def note_the_end(self) -> None:
        """The capsule has ended: an incident, unless that is no failure or has one already."""
        await asyncio.sleep(_SETTLE)
        status = self._capsule.wait_status
        self._log.info("ended", status=status)
        if self._capsule.ended_with_its_command:
            return  # somebody wanted it so
        if status == 0 and self._lead_status:  # a daemon's: process 1 notes that of the first process
            status = self._lead_status
        sighting = exit_sighting(
            status, stop_asked=is_due_to_stop(self.stop_asked, time.monotonic()), now_ns=time.time_ns()
        )
        kills = self._group.kills() if self._group is not None else 0
        if sighting is not None and kills and sighting.signal == signal.SIGKILL:
            exit_status = shell_status(status) if status is not None else None
            async with self._catching:
                pass  # as in ``report_end``
            await self._report_memory(memory_sighting(kills, time.time_ns(), exit_status))
            return
        await self.report_end(sighting)

    async def report_end(self, sighting: Sighting | None, before: CommitId | None = None) -> None:
        """The service has ended: an incident, if its end is a failure (a sighting) that has none already."""
        async with self._catching:
            pass  # what was caught before its death is written down first
        if self.exceptions is not None:
            await self.exceptions.settle()
            # Python ends with 1 when an exception leaves the main program; that has its incident already.
            if sighting is not None and sighting.exit_status == 1 and self.exceptions.main_failed:
                return
        # A fatal signal that was caught at its delivery has its incident already, with a commit.
        if sighting is None or self._death.ends_service(sighting.signal):
            return
        at: CommitId | None = None
        if sighting.kind is FailureKind.EXIT and self.exits is not None:
            at = await self.exits.committed_at_end()
            sighting = await self.exits.at_the_end(sighting)
        await self.report(sighting, at, before)

    async def keep(self, taken: DumpedCommit | None) -> CommitId | None:
        """Make durable what was taken at a failure; None where nothing was, or it could not be."""
        if taken is None:
            return None
        try:
            return (await self._keeper.store(taken)).id
        except ReliveError as error:
            self._log.error("commit at the failure was not stored", error=error.as_json())
            return None

    async def report(
        self, sighting: Sighting, at: CommitId | None, before: CommitId | None = None
    ) -> Incident:
        """Write down an incident."""
        incident = await self._keeper.report(sighting, at, before=before)
        self._log.warning("incident", number=incident.number, summary=sighting.summary, times=incident.times)
        return incident

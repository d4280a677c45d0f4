"""Seeing failures, each at its moment: fatal signals, failing requests, kills for want of memory, the service's end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from typing import Any

import structlog

from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.agent.commits.commit_writer import CommitWriter
from relive.agent.commits.committer import Committer, RateLimit
from relive.agent.commits.dumper import DumpedCommit
from relive.agent.control.background import BackgroundTasks
from relive.agent.failures.causes import Cause, CauseTable
from relive.agent.failures.exceptions import ExceptionWatch
from relive.agent.failures.exits import ExitWatch
from relive.agent.failures.failed_requests import FailedRequests
from relive.agent.failures.last_death import LastDeath
from relive.agent.failures.memory_kills import MemoryKills
from relive.agent.failures.request_matching import served_at
from relive.agent.failures.routes import RouteTable
from relive.agent.failures.sightings import (
    answer_sighting,
    broken_sighting,
    exit_sighting,
    fatal_sighting,
    hang_sighting,
    held_by_dead_criu,
    is_due_to_stop,
    sender_of,
    took_along,
    worker_end_sighting,
)
from relive.checkpoint.target import StoppedBy
from relive.config import Settings
from relive.errors import CapsuleError, RecordingError, ReliveError
from relive.kernel import procfs
from relive.kernel.return_addresses import callers_of
from relive.kernel.wait_status import shell_status
from relive.model.commit import CommitId, Trigger
from relive.model.incident import FailureKind, Incident, Sighting
from relive.recording.exchanges import ExchangeEnd, Exchanges
from relive.recording.reader import Recording
from relive.signals.client import TracerClient, TracerProcess
from relive.signals.messages import Exited, Fatal
from relive.signals.signals import CRASH_SIGNALS, FAULT_SIGNALS

__all__ = ["FailureWatch", "hold_limit", "is_worth_a_line"]

_LATE_NS = 10_000_000_000  # a commit so long after a failure does not show the service at it
_TRACER_PAUSE = 1.0  # [s] between tries to watch a service for signals
_HOLD_MORE = 20.0  # [s]
_STALL_NS = 30_000_000_000  # a request that begins so long after another was seen to hang fails by itself
_OF_DEAD_CRIU = 1.0  # [s] after CRIU has died, in which a fault is most likely one of its code
_SETTLE = 0.3  # [s] after the service's end, for the proxy's last words to arrive
_LINE_WAITS = 1.0  # [s] for the failing answer to a request that was being served when a line was written
_LINE_BACK = 10.0  # [s] before a line was read, in which a request failed that may have written it
_LOOK = 0.02  # [s]

_WORKER_LIVES = 1.0  # [s] a process that lived less, of whose end nobody saw how, was a helper that was done
# What ends a process that nobody asked to end; others are how supervisors and timers end theirs.
_UNASKED = CRASH_SIGNALS | {signal.SIGKILL}

MakeSighting = Callable[[dict[str, Any], int], Sighting]


def hold_limit(settings: Settings) -> float:
    """Seconds for which a process may stand before its death: one commit may be under way, and its own comes after that."""
    return 2 * settings.commit_limit + _HOLD_MORE


def is_worth_a_line(event: Exited, first: Collection[int | None]) -> bool:
    """In the log: else a service that runs a program for each request fills it with those that ended well."""
    return event.status != 0 or event.pid in first


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
        self._started = tracer
        self._hold_limit, self._may_fork = hold_limit(settings), settings.fork_server
        self._limit = RateLimit(settings.incident_pause)
        self._log = structlog.get_logger()
        self._seeing = asyncio.Lock()
        self._death = LastDeath()  # of a caught signal
        self._ends = LastDeath()  # of a process that nobody had stopped before
        self._failed = FailedRequests()
        self._routes, self._causes = RouteTable(), CauseTable()
        self._stall: Sighting | None = None  # the first hang of those that are of one failure
        self._lead = capsule.facts.root
        self._lead_status: int | None = None  # raw, of the last one at the head whose end was seen
        self._catching = asyncio.Lock()
        self._memory = (
            MemoryKills(group, capsule, committer, tasks, self._limit, self) if group is not None else None
        )
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
                # Something else traces it, such as a CRIU that is about to end.
                await asyncio.sleep(_TRACER_PAUSE)
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
        if is_worth_a_line(event, (self._capsule.facts.root, self._lead)):
            self._log.info("process ended", pid=event.pid, status=event.status, comm=event.comm)
        if event.pid == self._capsule.facts.root:
            self.root_status = event.status
        elif event.pid != self._lead and self._may_be_a_failure(event):
            self._tasks.begin(self._see_worker_end(event))
        if event.pid == self._lead:
            self._lead_status = event.status
            await self._follow_lead(tracer)

    def _may_be_a_failure(self, event: Exited) -> bool:
        """The end of one that is not the first. Shells and build tools exit with a failure all the time, workers do not."""
        if event.status is None:
            return event.seconds >= _WORKER_LIVES
        if event.signal is not None:
            return event.signal in _UNASKED
        return event.status != 0 and event.seconds >= _WORKER_LIVES and self._has_workers(event.parent)

    def _has_workers(self, parent: int | None) -> bool:
        """As process 1 has it (``native/init/ends.h``)."""
        if parent in (self._lead, self._capsule.facts.root, self._capsule.facts.init):
            return True
        stat = procfs.read_stat(parent) if parent is not None else None
        return stat is not None and stat.parent == self._lead and procfs.children_of(self._lead) == [parent]

    async def _see_worker_end(self, event: Exited) -> None:
        """A process died, or is gone after a commit: an incident, unless it went with the whole service."""
        now = time.time_ns()
        if await self._is_reported_at_exit(event, now):
            return
        self._ends.begin(event.signal, is_head=False)
        self._ends.let_go()
        ended = time.monotonic()
        await asyncio.sleep(_SETTLE)
        name = procfs.name_of(self._capsule.lead)
        if name is None or self.is_due_to_stop:
            return
        if event.signal == signal.SIGKILL and self._memory is not None and self._memory.has_just_killed():
            return  # that tells of it
        sighting = worker_end_sighting(event.status, event.comm, event.inside, name, now)
        if sighting is not None:
            await self.report(await self.with_requests(sighting, None, ended - _SETTLE), None)

    async def _is_reported_at_exit(self, event: Exited, now_ns: int) -> bool:
        """The process was held before its exit, or is one that an exception has ended."""
        if event.signal is not None:
            return False
        if self.exits is not None and await self.exits.has_reported(event.inside):
            return True
        code = os.waitstatus_to_exitcode(event.status) if event.status is not None else None
        return code is not None and await self.is_of_an_exception(code, now_ns)

    async def is_of_an_exception(self, status: int, now_ns: int) -> bool:
        """Python ends with 1 after an exception that nobody caught: that has its incident, and a commit where it was raised."""
        exceptions = self.exceptions
        return status == 1 and exceptions is not None and await exceptions.has_just_reported(now_ns)

    async def _new_tracer(self) -> TracerClient | None:
        tracer = await self._first_tracer() or await TracerClient.start(
            self._hold_limit, may_fork=self._may_fork
        )
        try:
            self._lead = self._capsule.lead
            # Daemons without a common parent are watched, each.
            for pid in self._capsule.heads() or [self._lead]:
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
        seen_ns, seen = time.time_ns(), time.monotonic()
        pid = procfs.innermost_pid(event.pid) or event.pid
        thread = procfs.innermost_pid(event.tid) or event.tid
        lead = self._capsule.lead
        is_head = event.pid in (lead, self._capsule.facts.root)
        self._death.begin(event.signal, is_head=is_head)
        worker_of = procfs.name_of(lead) if not is_head else None
        sender = self._sender(event, pid)
        callers = callers_of(event.pid, event.tid, event.kept)
        instruction, stack = procfs.registers_of(event.pid, event.tid) or (None, None)
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
        sighting = fatal_sighting(
            event.signal,
            event.code_name,
            event.address,
            event.comm,
            pid,
            thread,
            seen_ns,
            worker_of=worker_of,
            sender=sender,
        )
        found = {"callers": callers, "instruction": instruction, "stack": stack}
        # Beside the next one, which may be held by now.
        self._tasks.begin(self._report_death(sighting.model_copy(update=found), taken, seen))

    async def _report_death(self, sighting: Sighting, taken: DumpedCommit | None, seen: float) -> None:
        """Of a caught signal, right after the process was let go; ``seen``: monotonic [s]."""
        died = time.monotonic()
        at = await self.store_capture(taken)
        await asyncio.sleep(max(0.0, died + _SETTLE - time.monotonic()))
        sighting = await self._with_dead_criu(sighting, seen)
        await self.report(await self.with_requests(sighting, taken, died - _SETTLE), at)

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
                self._failed.note(message["request"], now, broke=False)
                self._tasks.begin(self._see_request(answer_sighting, message, now))
            case "unanswered":
                self._tasks.begin(self._see_request(hang_sighting, message, now))
            case "broken":
                # A connection that had served before may just have been closed for idleness as the request came.
                may_be_idle = bool(message.get("reused"))
                self._failed.note(message["request"], now, broke=True, may_be_idle=may_be_idle)
                if not may_be_idle:
                    self._tasks.begin(self._see_broken(message, now))

    async def _see_broken(self, message: dict[str, Any], now_ns: int) -> None:
        # When the service died, that is the incident; its broken answers only tell which requests it took along.
        await asyncio.sleep(_SETTLE)
        is_of_an_exit = self.exits is not None and self.exits.has_just_seen_one()
        began = (await self._about_request(message["request"])).get("began_wall_ns")
        if self._death.breaks(began) or self._ends.breaks(began) or is_of_an_exit:
            return
        if procfs.exists(self._capsule.lead):
            await self._see_request(broken_sighting, message, now_ns)

    async def _see_request(self, make: MakeSighting, message: dict[str, Any], now_ns: int) -> None:
        """A failure of a service that runs on: commit at it, unless the same failure had a commit a moment ago."""
        exceptions = self.exceptions if make is not hang_sighting else None
        if exceptions is not None and await exceptions.has_reported(message["request"]):
            return
        # One after the other, so that what was seen first is written down first.
        async with self._seeing:
            about = await self._about_request(message["request"])
            if "method" in about:
                about["route"] = self._routes.route(about["method"], about["target"])
            sighting = make(message | about, now_ns)
            if sighting.kind is FailureKind.HANG:
                sighting = await self._of_one_stall(sighting)
            else:
                sighting = await self._of_one_cause(sighting)
            incident = await self._commit_and_report(sighting)
            if exceptions is not None:
                exceptions.note_answer(message["request"], incident.number)

    async def _of_one_cause(self, failed: Sighting) -> Sighting:
        if failed.request is None or failed.began_wall_ns is None:
            return failed
        is_alone = self._failed.is_alone(failed.request, failed.began_wall_ns)
        cause = await asyncio.to_thread(
            Cause.look_up,
            self._capsule.paths.recording,
            failed.request,
            self._capsule.paths.logs[-1],
            is_alone=is_alone,
        )
        fingerprint = self._causes.fingerprint(failed.fingerprint, cause, self._keeper.known)
        return failed.model_copy(update={"fingerprint": fingerprint})

    async def _of_one_stall(self, hang: Sighting) -> Sighting:
        """What waits beside another request is of the failure of that one: a deadlock is often of two, and a stuck loop of all."""
        first = self._stall
        if first is not None and first.request is not None and hang.began_wall_ns is not None:
            is_beside = hang.began_wall_ns - first.seen_wall_ns < _STALL_NS
            if is_beside and await asyncio.to_thread(self._is_unanswered, first.request):
                return hang.model_copy(update={"fingerprint": first.fingerprint})
        self._stall = hang
        return hang

    def _is_unanswered(self, request: int) -> bool:
        try:
            return (
                Exchanges(Recording(self._capsule.paths.recording)).by_number(request).ended
                is ExchangeEnd.OPEN
            )
        except RecordingError:
            return False

    async def report_and_commit(self, sighting: Sighting) -> None:
        """Another failure of a service that runs on, such as a health check that fails: commit at it, as for a request."""
        async with self._seeing:
            await self._commit_and_report(sighting)

    async def see_line(self, sighting: Sighting) -> None:
        """A line of its output stands for a failure: one of its own only where nothing else is seen of it.

        An exception at the same moment, a process that ends, or the failing answer to a request during which it was written.
        """
        seen = time.monotonic()
        if self.exceptions is not None and await self.exceptions.heard_exception_at(sighting.seen_wall_ns):
            return
        await asyncio.sleep(_SETTLE)
        await self._committer.catch_up()
        recording, log = Recording(self._capsule.paths.recording), str(self._capsule.paths.logs[-1])
        served, waiting = await asyncio.to_thread(served_at, recording, log, sighting.log_begin or 0)
        until = seen + (_LINE_WAITS if waiting else 0.0)
        while not self._has_just_ended() and not self._has_failed(served, seen):
            if time.monotonic() >= until:
                await self.report_and_commit(sighting)
                return
            await asyncio.sleep(_LOOK)

    @property
    def has_just_died(self) -> bool:
        """A process of the service, of a signal or without having been held: others that end now may have been ended for that."""
        return self._death.is_recent() or self._ends.is_recent()

    def _has_just_ended(self) -> bool:
        """A process of the service has, or all of it with a failure: that is told as the failure."""
        if self.has_just_died:
            return True
        if self.exits is not None and self.exits.has_just_seen_one():
            return True
        status = self._capsule.wait_status if not self._capsule.is_alive else None
        return status is not None and exit_sighting(status, stop_asked=False, now_ns=0) is not None

    def _has_failed(self, served: set[int], seen: float) -> bool:
        """One of the requests that were being served has; where none was, one right before: some log behind their answer."""
        if served:
            return not served.isdisjoint(self._failed.since(seen - _LINE_BACK))
        return bool(self._failed.since(seen - _LINE_WAITS))

    async def _commit_and_report(self, sighting: Sighting) -> Incident:
        at: CommitId | None = None
        is_late = time.time_ns() - sighting.seen_wall_ns > _LATE_NS
        if not is_late and self._limit.allows(sighting.fingerprint) and not self._keeper.is_known(sighting):
            try:
                at = (await self._committer.commit(Trigger.INCIDENT)).id
            except ReliveError as error:
                self._log.error("commit at the failure failed", error=error.as_json())
        return await self.report(sighting, at)

    async def with_requests(self, end: Sighting, taken: DumpedCommit | None, since: float) -> Sighting:
        """The end of a process with the requests that it took along.

        Those that broke since a moment before it, monotonic [s]: many a runtime closes its connections before it exits. Where none
        has, those that were being served at its commit. What began later went with another.
        """
        await self._committer.catch_up()
        cursor = taken.cursor if taken is not None else None
        served = [one.request for one in cursor.open_requests] if cursor is not None else []
        broken = {one: await self._about_request(one) for one in self._failed.since(since, broken=True)}
        broken = {
            one: request
            for one, request in broken.items()
            if (request.get("began_wall_ns") or 0) <= end.seen_wall_ns
        }
        requests = sorted(broken or served)
        if not requests:
            return end
        return took_along(end, requests, broken.get(requests[0]) or await self._about_request(requests[0]))

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
        if self._memory is not None:
            await self._memory.watch()

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
        is_killed = sighting is not None and sighting.signal == signal.SIGKILL
        if is_killed and self._memory is not None and self._memory.has_just_killed():
            async with self._catching:
                pass  # as in ``report_end``
            await self._memory.report(shell_status(status) if status is not None else None)
            return
        await self.report_end(sighting)

    async def report_end(self, sighting: Sighting | None, before: CommitId | None = None) -> None:
        """The service has ended: an incident, if its end is a failure (a sighting) that has none already."""
        async with self._catching:
            pass  # what was caught before its death is written down first
        if self.exceptions is not None:
            await self.exceptions.flush()
            # Python ends with 1 when an exception leaves the main program; that has its incident already.
            if sighting is not None and sighting.exit_status == 1 and self.exceptions.main_failed:
                return
        # A fatal signal that was caught at its delivery has its incident already, with a commit.
        if sighting is None or self._death.ends_service(sighting.signal):
            return
        sighting = await self._with_dead_criu(sighting, time.monotonic())
        at: CommitId | None = None
        if sighting.kind is FailureKind.EXIT and self.exits is not None:
            at = await self.exits.committed_at_end()
            sighting = await self.exits.at_the_end(sighting)
        await self.report(sighting, at, before)

    async def _with_dead_criu(self, end: Sighting, seen: float) -> Sighting:
        """``seen``: monotonic [s]."""
        if end.signal not in FAULT_SIGNALS:
            return end
        async with self._committer.lock:
            pass  # a commit that was under way has failed by now, and it is known of what
        return held_by_dead_criu(end) if seen - self._committer.criu_died_at < _OF_DEAD_CRIU else end

    async def store_capture(self, taken: DumpedCommit | None) -> CommitId | None:
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

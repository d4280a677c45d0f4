"""Processes of the service that are about to exit with a failure: committed while process 1 of the capsule holds them.

Whom process 1 holds, and that nobody stays stopped whoever is killed, is said in ``native/init/ends.h``. Where it holds nobody (a
service started with ``--files overlay``, a capsule of an older Relive), and of whom it could not hold, the tracer tells when it has
happened (``watch``).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import OrderedDict
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import structlog

from relive.agent.capsule.lives import Capsule
from relive.agent.commits.commit_writer import CommitWriter
from relive.agent.commits.committer import Committer, RateLimit
from relive.agent.commits.dumper import DumpedCommit
from relive.agent.failures.exceptions import ExceptionWatch
from relive.agent.failures.sightings import exit_sighting, worker_exit_sighting
from relive.checkpoint.target import StoppedBy
from relive.config import Settings
from relive.errors import ReliveError
from relive.kernel import procfs
from relive.kernel.unixpath import near
from relive.model.commit import CommitId, Trigger
from relive.model.failure_stack import stack_at_end
from relive.model.incident import Sighting
from relive.replay.outcomes import read_log

__all__ = ["ExitWatch"]

Result = TypeVar("Result")

_MESSAGE_MOST = 64  # [bytes]
_STOPS_WITHIN = 5.0  # [s] all threads of a process that is held; one that waits for a disk stops after that
_REPORTS_MOST = 256  # processes of which the tracer has not told that they have ended
_POLL = 0.002  # [s]
_MISSES = 60  # connections in a row that fail
_PAUSE = 1.0  # [s] before another connection to process 1, which mostly has ended
_SETTLE = 0.3  # [s] after a worker's end, in which the whole service may end; before an exit, in which it closes connections
_SAME_MOMENT = 1.0  # [s]
_LAST_WORDS = 16384  # [bytes] at the end of the log in which a stack is looked for
_SUMMARY_MOST = 1000


@dataclass(frozen=True, slots=True)
class Exiting:
    """A process that stands right before its end; ``pid`` as the host sees it.

    Attributes:
        inside: its number in the capsule.
        status: 1 to 255.
    """

    pid: int
    inside: int
    comm: str
    status: int


@dataclass(frozen=True, slots=True)
class _CommitAtExit:
    """``seen_at``, ``taken_at``: monotonic [s]; ``keeping`` makes it durable, with None for ``taken`` as its result."""

    status: int
    seen_at: float
    taken_at: float
    taken: DumpedCommit | None
    keeping: asyncio.Task[CommitId | None]

    def is_of_its_child(self, status: int) -> bool:
        """A script ends as what it had started: the commit of that shows more than another one, of the script, would."""
        is_now = time.monotonic() - self.taken_at < _SAME_MOMENT
        return self.taken is not None and self.status == status and is_now


class Failures(Protocol):
    """What sees all other failures of the service (``failures``)."""

    exceptions: ExceptionWatch | None

    @property
    def is_due_to_stop(self) -> bool:
        """Whatever ends now may have been asked to."""

    @property
    def has_just_died(self) -> bool:
        """A process was killed a moment ago: PostgreSQL ends its other ones then, which exit with a failure."""

    async def with_requests(self, end: Sighting, taken: DumpedCommit | None, since: float) -> Sighting:
        """With the requests that an end took along; ``since``: monotonic [s]."""

    async def is_of_an_exception(self, status: int, now_ns: int) -> bool:
        """A process that exits with that status ends of an exception that has its incident."""

    async def store_capture(self, taken: DumpedCommit | None) -> CommitId | None:
        """Make durable what was taken at a failure."""

    async def report(self, sighting: Sighting, at: CommitId | None) -> object:
        """Write down an incident."""


class ExitWatch:
    """Commits them, and tells of those that are workers'. Belongs to the agent's event loop."""

    def __init__(
        self,
        settings: Settings,
        capsule: Capsule,
        committer: Committer,
        keeper: CommitWriter,
        failures: Failures,
    ) -> None:
        self._capsule = capsule
        self._committer = committer
        self._keeper = keeper
        self._failures = failures
        self._limit = RateLimit(settings.incident_pause)
        self._log = structlog.get_logger()
        self._last: _CommitAtExit | None = None
        self._end: _CommitAtExit | None = None  # at that of the service's first process
        self._running: set[asyncio.Task[Any]] = set()
        self._reports: OrderedDict[int, asyncio.Task[bool]] = OrderedDict()  # by the number in the capsule
        self._seen_at = float("-inf")  # monotonic [s]

    async def watch(self) -> None:
        """Hear of them until the capsule has ended. One in which nobody can be heard is given up after a minute."""
        misses = 0
        while misses < _MISSES and self._capsule.is_alive:
            line = self._connect()
            if line is None:  # not yet, or process 1 has had no time to accept others
                misses += 1
                await asyncio.sleep(_PAUSE)
                continue
            misses = 0
            self._log.info("process 1 holds who exits with a failure")
            with line, contextlib.suppress(ConnectionError):
                while message := await asyncio.get_running_loop().sock_recv(line, _MESSAGE_MOST):
                    process, status = (int(word) for word in message.split())
                    # Each by itself: of several that exit at once one is committed, and the others need not wait for that.
                    self._reports.pop(process, None)
                    self._reports[process] = self._begin(self._answer(line, process, status))
                    while len(self._reports) > _REPORTS_MOST:
                        self._reports.popitem(last=False)
            await asyncio.sleep(_PAUSE)

    async def _answer(self, line: socket.socket, process: int, status: int) -> bool:
        is_told = False
        try:
            is_told = await self._hear(process, status)
        except Exception:  # whatever it was, the process must go on
            self._log.exception("a process that exits was not committed", process=process)
        with contextlib.suppress(OSError, ValueError):  # the capsule has ended
            await asyncio.get_running_loop().sock_sendall(line, str(process).encode())
        return is_told

    def _begin(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def has_reported(self, process: int | None) -> bool:
        """That process, by its number in the capsule, was held before it ended, so its end is told, or is none to be told."""
        task = self._reports.pop(process, None) if process is not None else None
        return task is not None and await task

    def has_just_seen_one(self) -> bool:
        """A process was about to exit a moment ago: what broke since then, broke with it."""
        return time.monotonic() - self._seen_at < _SAME_MOMENT

    async def committed_at_end(self) -> CommitId | None:
        """The commit at the service's own exit, which has come; None where there is none. Workers' are reported by then."""
        if self._running:
            await asyncio.wait(self._running)
        return await self._end.keeping if self._end is not None else None

    async def at_the_end(self, sighting: Sighting) -> Sighting:
        """The service's own end, with the requests that were being served at it, and its last words."""
        return await self.with_last_words(await self._with_requests(sighting, self._end))

    async def _with_requests(self, sighting: Sighting, commit: _CommitAtExit | None) -> Sighting:
        taken, seen_at = (commit.taken, commit.seen_at) if commit is not None else (None, time.monotonic())
        return await self._failures.with_requests(sighting, taken, seen_at - _SETTLE)

    async def with_last_words(self, sighting: Sighting) -> Sighting:
        """With the exception that the log ends with, if it does.

        That stack is the end's, also where the recorder saw the request begin only after it was printed: it is beside the way.
        """
        words = await asyncio.to_thread(self._last_words, sighting.log_held)
        if words is None:
            return sighting
        exception, begin = words
        update: dict[str, Any] = {"summary": f"{sighting.summary}: {exception}"[:_SUMMARY_MOST]}
        if sighting.log_begin is not None:
            update["log_begin"] = min(sighting.log_begin, begin)
        return sighting.model_copy(update=update)

    def _connect(self) -> socket.socket | None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.setblocking(False)
        try:
            with near(self._capsule.paths.files / "ends") as name:
                line.connect(name)
        except OSError:
            line.close()
            return None
        return line

    async def _hear(self, process: int, status: int) -> bool:
        """False: somebody killed it while it was held, so it does not end with that status."""
        pid = await asyncio.to_thread(self._outside, process)
        stat = procfs.read_stat(pid) if pid is not None else None
        if pid is None or stat is None:
            return False
        stands = await _stands_still(pid)
        if not stands and procfs.read_stat(pid) is None:
            return False
        await self._see(Exiting(pid, process, stat.comm, status), stands=stands)
        return True

    async def _see(self, exiting: Exiting, *, stands: bool) -> None:
        """Commit it if it stands still; it goes on when this returns."""
        now = time.time_ns()
        lead = self._capsule.lead
        is_first = exiting.pid in (lead, self._capsule.facts.root)
        sighting = _sighting(
            exiting, None if is_first else procfs.name_of(lead), now, self._log_size() if stands else None
        )
        if not is_first and self._failures.has_just_died:
            self._log.info("ended for another's death", pid=exiting.pid, status=exiting.status)
            return
        if (
            self._failures.is_due_to_stop
            or sighting is None
            or await self._failures.is_of_an_exception(exiting.status, now)
        ):
            return
        seen_at = self._seen_at = time.monotonic()
        if is_first and self._last is not None and self._last.is_of_its_child(exiting.status):
            self._end = self._last
            return
        taken: DumpedCommit | None = None
        if not stands:
            self._log.error("no commit at the exit: the process does not stand still", pid=exiting.pid)
        elif not self._keeper.is_known(sighting) and self._limit.allows(sighting.fingerprint):
            try:
                standing = StoppedBy(None, exiting.pid, exiting.pid)
                taken = await self._committer.capture(Trigger.INCIDENT, standing)
            except ReliveError as error:
                self._log.error("commit at the exit failed", error=error.as_json())
        self._seen_at = time.monotonic()
        keeping = asyncio.create_task(self._failures.store_capture(taken))
        self._last = _CommitAtExit(exiting.status, seen_at, self._seen_at, taken, keeping)
        if is_first:
            self._end = self._last  # which is noted when it has come
        else:
            self._begin(self._report(sighting, self._last))

    async def _report(self, sighting: Sighting, commit: _CommitAtExit) -> None:
        """Of a worker."""
        at = await commit.keeping
        await asyncio.sleep(_SETTLE)
        sighting = await self.with_last_words(await self._with_requests(sighting, commit))
        # One that went with the whole service is no failure of its own.
        if procfs.name_of(self._capsule.lead) is not None and not self._failures.is_due_to_stop:
            await self._failures.report(sighting, at)

    def _log_size(self) -> int | None:
        try:
            return self._capsule.paths.logs[-1].stat().st_size
        except OSError:
            return None

    def _last_words(self, end: int | None) -> tuple[str, int] | None:
        """The exception of the stack that the log ends with, and where that begins [bytes]."""
        log = self._capsule.paths.logs[-1]
        try:
            end = log.stat().st_size if end is None else end
        except OSError:
            return None
        lines = read_log(log, max(0, end - _LAST_WORDS), end)
        stack = stack_at_end(lines)
        if stack is None:
            return None
        head = stack.text[0].strip()
        first = max(number for number, line in enumerate(lines) if head in line)
        return stack.exception, max(0, end - sum(len(line.encode()) + 1 for line in lines[first:]))

    def _outside(self, process: int) -> int | None:
        tree = procfs.tree_of(self._capsule.facts.init)
        return next((pid for pid in tree if procfs.innermost_pid(pid) == process), None)


async def _stands_still(pid: int) -> bool:
    """Wait until all of its threads are stopped; False when they are not in time, or it is gone."""
    deadline = time.monotonic() + _STOPS_WITHIN
    while time.monotonic() < deadline:
        stats = [procfs.read_stat(thread) for thread in procfs.threads_of(pid)]
        if not stats:
            return False
        if all(stat is None or stat.state in "TtZX" for stat in stats):
            return True
        await asyncio.sleep(_POLL)
    return False


def _sighting(exiting: Exiting, worker_of: str | None, now_ns: int, log_held: int | None) -> Sighting | None:
    """``worker_of``: name of the service's first process, where it is another that exits."""
    if worker_of is None:
        return exit_sighting(exiting.status << 8, stop_asked=False, now_ns=now_ns)
    seen = worker_exit_sighting(exiting.status, exiting.comm, exiting.inside, worker_of, now_ns)
    return seen.model_copy(update={"log_held": log_held}) if seen is not None else None

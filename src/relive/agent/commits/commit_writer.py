"""The part of the agent that makes commits durable, one after the other, in a thread of its own.

A commit's parent is the one stored before it, incidents are written after the commits they refer to, and old commits are
dropped: all of it in the order in which it was asked for, so that nothing refers to what is not there yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from relive.agent.commits.commit_group import CommitGroup, Outcome, give_up, store_group
from relive.agent.commits.dumper import DumpedCommit
from relive.agent.commits.file_bases import free_bases
from relive.agent.commits.protection import Protection
from relive.agent.commits.service_cost import is_contended, thread_times
from relive.agent.failures.closing import close, masked_evidence
from relive.config import Settings
from relive.errors import RefUnknown, ReliveError
from relive.incidents.evidence import Evidence
from relive.incidents.evidence import store_evidence as keep_evidence
from relive.incidents.incidents import Incidents
from relive.incidents.report.masking import FileMask
from relive.kernel.heap import trim_memory
from relive.maintenance.retention import Retention
from relive.maintenance.thinning import Thinning
from relive.model.commit import CommitId, Trigger
from relive.model.failure_stack import lines_to_first_stack
from relive.model.incident import FailureKind, Incident, Occurrence, Sighting
from relive.model.life_paths import LifePaths
from relive.recording.patching import overwrite
from relive.recording.reader import Recording
from relive.recording.retention import pin
from relive.sandbox.branch import branched_commits
from relive.store import Store, StoredCommit

__all__ = ["CommitWriter", "commit_before"]

Result = TypeVar("Result")
_LINES = 120  # of the log that an incident holds
_LINES_BYTES = 32768
_REQUEST_BYTES = 128 << 10  # from the begin of a request on, in which its stack is looked for
_OF_LIVING = frozenset({FailureKind.ANSWER, FailureKind.EXCEPTION, FailureKind.LOG})
_CAPTURES_LEAST = 2  # that may wait to become durable, however large they are
_CAPTURES_MOST = 16
_PAGES_MOST = 1 << 14  # that were written for captures which are not durable: 64 MB of memory
_THIN_EVERY = 16  # commits
_THIN_PAUSE = 5.0  # [s] at least between two times, since each reads all placements
_LET_GO_EVERY = 1.0  # [s] more often memory would be given back only to be taken again
_RETENTION = "retention"
_CLOSE_EVERY = 5.0  # [s]
_CLOSED_AGAIN = 16  # incidents
_CLOSED_AT_END = 1000
# What is seen so long after a commit at a failure may be the same failure, seen elsewhere.
_SAME_FAILURE_NS = 5_000_000_000


def commit_before(
    commits: Iterable[StoredCommit], seen_wall_ns: int, at: CommitId | None
) -> StoredCommit | None:
    """The newest commit that was taken before a failure began.

    What was taken at another sighting a moment ago is not before: one failure is seen as an exception, in the log, and as an
    answer.

    Args:
        commits: of one life, newest first. at: the one taken at the failure.
    """
    commits = list(commits)
    taken_at = next((one.taken_wall_ns for one in commits if one.id == at), seen_wall_ns)
    moment = min(seen_wall_ns, taken_at)
    for one in commits:
        is_of_a_failure = one.trigger == Trigger.INCIDENT and moment - one.taken_wall_ns < _SAME_FAILURE_NS
        if one.id != at and one.taken_wall_ns < moment and not is_of_a_failure:
            return one
    return None


def _runs_on(store: Store, commit: StoredCommit) -> bool:
    """No process in it stands before its death: in a branch that one would stay there, and nobody would take its place."""
    if commit.trigger != Trigger.INCIDENT:
        return True
    try:
        return store.facts(commit.id).stopped_pid is None
    except ReliveError:
        return False


def _tell_nobody() -> None:
    pass


class CommitWriter:
    """Stores what the agent captured. Its methods are called in the event loop and awaited there.

    Args:
        root: gives the service's first process, None while there is none. The secrets of its environment, and what looks like one,
            are taken out of what is kept of its log.
        inside: the recording from inside the service, in which that is masked too that was learned to be secret later.

    Attributes:
        pending: what was asked for and is not done.
        is_contended: when commits were stored last, other work took the processors.
        is_ready: the service listens, and its first commit was taken; what fails before is marked so. ``PolicyCommits`` tells.
    """

    def __init__(
        self,
        settings: Settings,
        service: str,
        life: str,
        logs: list[Path],
        root: Callable[[], int | None] = lambda: None,
        *,
        protection: Protection,
        inside: Path | None = None,
    ) -> None:
        self._settings = settings
        self._service = service
        self._life = life
        self._logs = logs
        self._root = root
        self._protection = protection
        self._log = structlog.get_logger()
        self._inside = inside
        self._mask = FileMask.configured(settings)
        self._closed = 0  # how much the mask knew when the incidents were masked last
        self._closed_at = 0.0  # [s] monotonic
        self._thread = ThreadPoolExecutor(1, "keeper")
        self._store: Store | None = None
        self._incidents = Incidents(settings.incidents)
        self._known: dict[str, int] = {}
        self._committed: set[str] = set()
        self._stored = 0  # since old commits were dropped
        self._thin_next = self._let_go_next = 0.0  # [s] monotonic
        self._letting_go: asyncio.TimerHandle | None = None
        self._group: CommitGroup | None = None  # which may still grow
        self._outcomes: asyncio.Future[list[Outcome]]  # of that
        self._told_written: list[Callable[[], None]] = []  # for those in it
        self._captures = self._pages = 0  # that are not durable yet
        self.is_contended = False
        self.pending = 0
        self.is_ready = True

    async def store(self, capture: DumpedCommit, written: Callable[[], None] = lambda: None) -> StoredCommit:
        """Make a capture durable, together with others that were taken by the time at which that begins.

        Args:
            written: called in the event loop when only the disk is waited for; not where old commits are dropped afterwards.

        Raises:
            DiskFull, StoreError: it could not be stored.
        """
        pages = capture.written_pages if capture.is_micro else _PAGES_MOST
        self.pending += 1
        self._captures += 1
        self._pages += pages
        try:
            position = self._group.add(capture) if self._group is not None else None
            if position is None:
                group, told = CommitGroup(), list[Callable[[], None]]()
                position = group.add(capture)
                self._outcomes = self._begin_to_store(group, told)
                self._group, self._told_written = group, told
            assert position is not None
            self._told_written.append(written)
            outcome = (await asyncio.shield(self._outcomes))[position]
        finally:
            self.pending -= 1
            self._captures -= 1
            self._pages -= pages
        if isinstance(outcome, Exception):
            raise outcome
        self._let_go_soon()
        return outcome

    def _begin_to_store(
        self, group: CommitGroup, written: list[Callable[[], None]]
    ) -> asyncio.Future[list[Outcome]]:
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended; the commits go on
                loop.call_soon_threadsafe(lambda: [one() for one in written])

        return loop.run_in_executor(self._thread, self._store_group, group, tell)

    @property
    def is_full(self) -> bool:
        """As many captures wait to become durable as may; one that waits alone may be of any size."""
        return self._captures >= _CAPTURES_LEAST and (
            self._captures >= _CAPTURES_MOST or self._pages >= _PAGES_MOST
        )

    def _store_group(self, group: CommitGroup, written: Callable[[], None]) -> list[Outcome]:
        captures = group.take()  # before what may fail: no later capture may join a group that nobody stores
        began = thread_times()
        try:
            store = self._open()
            parent = store.latest_of_life(self._life)
        except Exception as error:
            return give_up(captures, error)
        self._stored += len(captures)
        is_to_thin = self._stored >= _THIN_EVERY and time.monotonic() >= self._thin_next
        # Dropping takes the processor, too: with the next one, which may be taken when this is told, it would contend for that.
        outcomes = store_group(
            store,
            captures,
            parent.id if parent is not None else None,
            _tell_nobody if is_to_thin else written,
        )
        self.is_contended = is_contended(began, thread_times())
        if is_to_thin:
            self._stored = 0
            self._thin(store)
            self._thin_next = time.monotonic() + _THIN_PAUSE
        return outcomes

    def _thin(self, store: Store) -> None:
        """Drop old commits. Whatever goes wrong, the commit before it is durable; it is tried again with a later one."""
        try:
            retention = Retention.configured(self._settings)
            branched = partial(branched_commits, self._settings)
            Thinning(retention, self._incidents, branched).thin(store, self._service)
            with contextlib.suppress(OSError, ValueError):
                free_bases(self._settings, store, self._service)
        except Exception as error:
            self._protection.failed(_RETENTION, error)
            self._log.exception("old commits were not dropped")
        else:
            self._protection.works(_RETENTION)

    def _let_go_soon(self) -> None:
        """At once, behind the answer and before what is asked for next; later where it was done a moment ago."""
        if self._letting_go is None:
            loop = asyncio.get_running_loop()
            self._letting_go = loop.call_at(max(loop.time(), self._let_go_next), self._begin_to_let_go, loop)

    def _begin_to_let_go(self, loop: asyncio.AbstractEventLoop) -> None:
        self._letting_go, self._let_go_next = None, loop.time() + _LET_GO_EVERY
        loop.run_in_executor(self._thread, self._let_go)

    def _let_go(self) -> None:
        if self._store is not None:
            self._store.release_memory()
        trim_memory()

    async def release_disk(self) -> None:
        """Give back the space of unnamed files: the next commit reads the one before it back from packs."""
        await self._run(Store.release_disk)

    async def report(
        self,
        sighting: Sighting,
        at: CommitId | None,
        evidence: Evidence | None = None,
        before: CommitId | None = None,
    ) -> Incident:
        """Write an incident, or count one more sighting of a known one.

        Args:
            before: the commit before it, where that is not the last one before its request or before now.
        """
        return await self._run(lambda store: self._report(store, sighting, at, evidence, before))

    async def captured_as(self, name: str) -> StoredCommit | None:
        """The commit that was given this name when it was taken; None if there is none."""
        return await self._run(lambda store: store.captured_as(name))

    async def last(self) -> CommitId | None:
        """The last commit of this life, once all that was asked for before is stored."""
        found = await self._run(lambda store: store.latest_of_life(self._life))
        return found.id if found is not None else None

    def _report(
        self,
        store: Store,
        sighting: Sighting,
        at: CommitId | None,
        evidence: Evidence | None,
        before: CommitId | None,
    ) -> Incident:
        with store.nothing_dropped():  # else `relive retain` could drop what the incident is about to name
            if evidence is not None:  # before the incident: it tells of secrets that stand there
                self.learn()
                evidence = masked_evidence(evidence, self._mask)
            incident = self._write_incident(store, sighting, at, before, evidence)
        self._close_again()
        return incident

    def _close_again(self) -> None:
        """Mask once more what was written of this life's latest incidents, if something was learned since; not at each of many."""
        if time.monotonic() - self._closed_at >= _CLOSE_EVERY:
            self._close(list(self._known.values())[-_CLOSED_AGAIN:])

    def _close(self, numbers: list[int]) -> None:
        self._closed_at = time.monotonic()
        if self._mask.learned == self._closed:
            return
        for number in numbers:
            with contextlib.suppress(ReliveError):
                close(self._incidents, self._settings.incidents, number, self._mask)
        late, self._mask.fresh = self._mask.fresh, []
        if self._inside is not None and late:
            with contextlib.suppress(OSError):
                overwrite(self._inside, [secret.encode("utf-8", "surrogatepass") for secret in late])
        self._closed = self._mask.learned

    async def add_evidence(self, number: int, evidence: Evidence) -> None:
        """Lay evidence beside an incident that was reported without."""
        await self._run(lambda _store: self._add_evidence(number, evidence))

    def _add_evidence(self, number: int, evidence: Evidence) -> None:
        self.learn()
        keep_evidence(self._settings.incidents, number, masked_evidence(evidence, self._mask))
        self._close_again()

    async def close_incidents(self) -> None:
        """Mask what was written of this life's incidents with all that is known at its end."""
        await self._run(lambda _store: self._close(list(self._known.values())[-_CLOSED_AT_END:]))

    def _write_incident(
        self,
        store: Store,
        sighting: Sighting,
        at: CommitId | None,
        before: CommitId | None,
        evidence: Evidence | None,
    ) -> Incident:
        """Evidence lies beside the incident before that is there, and stays what it was when the failure is seen again."""
        if before is None or not self._has(store, before):
            before = self._before(store, sighting, at)
        self.learn()
        starting = sighting.starting or not self.is_ready
        update = {"summary": self._mask.whole(sighting.summary), "starting": starting}
        sighting = sighting.model_copy(update=update)
        log_end = self._log_end()
        known = self._known.get(sighting.fingerprint)
        if known is None:
            tail = self._log_lines(sighting)
            incident = self._incidents.add(
                self._service,
                self._life,
                sighting,
                before=before,
                at=at,
                log_end=log_end,
                log_tail=tail,
                lay=lambda number: self._lay(number, evidence),
            )
            self._known[sighting.fingerprint] = incident.number
            self._note_commit(incident)
            self._pin(store, before)
            return incident
        incident = self._incidents.get(known)
        latest = Occurrence(sighting=sighting, before=before, log_end=log_end)
        incident = incident.model_copy(
            update={
                "times": incident.times + 1,
                "last_seen_wall_ns": sighting.seen_wall_ns,
                "at": incident.at or at,
                "latest": latest,
                # The thread that waits belongs to the commit in which it does.
                "sighting": incident.sighting
                if incident.at is not None or at is None
                else incident.sighting.model_copy(
                    update={"throw": sighting.throw, "pid": sighting.pid, "thread": sighting.thread}
                ),
            }
        )
        self._incidents.save(incident)
        self._note_commit(incident)
        self._pin(store, before)
        self._lay(incident.number, evidence)
        return incident

    def _lay(self, number: int, evidence: Evidence | None) -> None:
        if evidence is not None:
            keep_evidence(self._settings.incidents, number, evidence)

    def _pin(self, store: Store, before: CommitId | None) -> None:
        """Have the recording kept from the commit before an incident up to now, for its replays."""
        recording = LifePaths(self._settings.capsules / self._service / self._life).recording
        with contextlib.suppress(OSError, ReliveError):  # then it is kept as long as all else
            cursor = store.facts(before).cursor if before is not None else None
            now = Recording(recording).cursor()
            if cursor is not None and now is not None:
                pin(recording, cursor.sequence, now.seq)

    def _log_end(self) -> int:
        try:
            return self._logs[-1].stat().st_size
        except OSError:  # somebody has removed it; what is known without it is known all the same
            return 0

    @staticmethod
    def _has(store: Store, commit: CommitId) -> bool:
        """It is in the store still: the policy of keeping may have dropped it."""
        try:
            store.get(commit)
        except RefUnknown:
            return False
        return True

    def _note_commit(self, incident: Incident) -> None:
        if incident.at is not None:
            self._committed.add(incident.sighting.fingerprint)

    def _before(self, store: Store, sighting: Sighting, at: CommitId | None) -> CommitId | None:
        """The last commit before the failing request, or before the failure where no request is known."""
        if sighting.sequence is not None:
            found = store.before_event(
                self._life, sighting.sequence, sighting.began_wall_ns, is_fit=lambda one: _runs_on(store, one)
            )
        else:
            log = store.log(self._service)
            own = [one for one in log if one.life == self._life and not one.is_of_branch]
            commits = [one for one in own if _runs_on(store, one)]
            found = commit_before(commits, sighting.seen_wall_ns, at)
        return found.id if found is not None else None

    def is_known(self, sighting: Sighting) -> bool:
        """An incident of this life has the same fingerprint."""
        return sighting.fingerprint in self._known

    @property
    def known(self) -> Collection[str]:
        """The fingerprints of this life's incidents."""
        return self._known.keys()

    def has_commit(self, fingerprint: str) -> bool:
        """An incident of this life with that fingerprint has a commit taken at its moment."""
        return fingerprint in self._committed

    def _log_lines(self, sighting: Sighting) -> list[str]:
        """The last lines since a failure began; of a request that the service outlived those until its stack, or its first ones: it
        may have served many others by now, of which the last ones are.
        """
        log, begin = self._logs[-1], sighting.log_begin or 0
        is_first = sighting.log_begin is not None and sighting.kind in _OF_LIVING
        try:
            with log.open("rb") as file:
                file.seek(begin if is_first else max(begin, log.stat().st_size - _LINES_BYTES))
                text = file.read(_REQUEST_BYTES if is_first else _LINES_BYTES)
                text = text.lstrip(b"\0")  # of what was freed (``bounding``)
        except OSError:
            return []
        lines = text.decode(errors="replace").splitlines()
        kept = lines_to_first_stack(lines, _LINES) if is_first else lines[-_LINES:]
        return [str(line) for line in self._mask.whole(kept)]

    def learn(self) -> None:
        """Know the secrets in the environment of the service that runs now, for when it is gone; in any thread."""
        root = self._root()
        if root is not None:
            self._mask.learn_process(root)
        for log in self._logs:
            self._mask.learn_log(log)

    async def make_ready(self) -> None:
        """Do beforehand what the first commit would wait for."""
        await self._run(self._make_ready)

    def _make_ready(self, store: Store) -> None:
        self.learn()
        self._mask.fresh.clear()  # these the recorder inside knows from the beginning
        store.make_ready()

    async def drain(self) -> None:
        """Wait until all that was asked for is done."""
        await self._run(lambda _store: None)

    async def _run(self, work: Callable[[Store], Result]) -> Result:
        self._group = None  # what is captured from now on comes behind this
        self.pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: work(self._open()))
        finally:
            self.pending -= 1

    def _open(self) -> Store:
        if self._store is None:
            self._store = Store(self._settings.store)
        return self._store

    def close(self) -> None:
        """End the thread."""
        if self._letting_go is not None:
            self._letting_go.cancel()
        self._thread.shutdown()
        if self._store is not None:
            self._store.close()

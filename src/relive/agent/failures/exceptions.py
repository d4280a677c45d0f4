"""Exceptions that the recorder inside told of: a commit while the failing thread stands still, an incident, and its evidence.

A failing request is seen twice, from inside and by the proxy as a 5xx answer or a broken connection: that is one incident.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.start_events import beginning_for
from relive.agent.commits.commit_writer import CommitWriter
from relive.agent.commits.committer import Committer, RateLimit
from relive.agent.commits.dumper import DumpedCommit
from relive.agent.control.background import BackgroundTasks
from relive.agent.failures.request_matching import failed_meanwhile, find_request
from relive.agent.failures.sightings import exception_sighting
from relive.agent.failures.worktree import has_changes
from relive.config import Settings
from relive.errors import CommitFailed, ProcessGone, RecordingError, ReliveError
from relive.incidents.evidence import Evidence
from relive.kernel import procfs
from relive.kernel.inotify import MadeNames
from relive.model.commit import CommitId, Trigger
from relive.model.failure import ErrorPackage, read_package
from relive.model.launch import launch_of
from relive.recording.both_ends import BothEnds
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording

__all__ = ["ExceptionWatch"]

_THROW = re.compile(r"throw-[0-9]+-[0-9]+")
_APPEARS = 0.5  # [s] between a thread's word that it will wait and the file by which it does
_APPEARS_POLL = 0.001  # [s]
# [s] from a logged exception to the failing answer of its request.
_ANSWERED_WITHIN, _ANSWERED_POLL = (
    1.0,
    0.02,
)
_SETTLE = 0.1  # [s] after an answer, for an exception that escaped after it
_KNOWN_MOST = 4096  # requests that are remembered
_COMMITS, _COMMITS_TIME = 6, 60.0  # commits at exceptions in so many seconds, whatever they are
_EVENTS_MOST = 20_000
_HEARD_WITHIN_NS = 60_000_000_000  # how far back the service's word on when it failed is believed
_SAME_MOMENT_NS = 1_000_000_000  # an exception and a line of the log so close to each other are one failure
_ROOTS_MOST = 64  # places of code that are looked at
_OUTSIDE_MOST = 500  # events outside of requests before a failure outside of one


class ExceptionWatch:
    """Belongs to the agent's event loop.

    Args:
        look: takes what is in the rings, in any thread; each ``failure`` event reaches ``on_failure_event`` by way of the loop.

    Attributes:
        main_failed: an exception has escaped from the main program of the service's root process.
    """

    def __init__(
        self,
        settings: Settings,
        capsule: Capsule,
        committer: Committer,
        keeper: CommitWriter,
        tasks: BackgroundTasks,
        look: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._capsule = capsule
        self._committer = committer
        self._keeper = keeper
        self._tasks = tasks
        self._look = look
        self._rings = capsule.paths.rings.resolve()
        self._root = procfs.innermost_pid(capsule.facts.root) or capsule.facts.root
        self._limit = RateLimit(settings.incident_pause)
        self._commits: deque[float] = deque()
        self._pending: set[asyncio.Task[None]] = set()
        self._newest: dict[str, asyncio.Task[None]] = {}  # by fingerprint, while it runs
        self._reported: OrderedDict[int, None] = OrderedDict()
        self._answered: OrderedDict[int, int] = OrderedDict()
        self._changed: dict[str, bool | None] = {}  # by the root of a work tree
        self._log = structlog.get_logger()
        self._heard_wall_ns = 0
        self._logged: deque[tuple[int, tuple[Any, ...]]] = deque(maxlen=_KNOWN_MOST)  # when, and by whom
        self.main_failed = False

    async def watch(self) -> None:
        """Have the rings looked at as soon as a thread waits; without this it would be at the drain's next turn."""
        loop = asyncio.get_running_loop()
        with MadeNames(self._rings) as names:
            made = asyncio.Event()
            loop.add_reader(names.fileno(), made.set)
            try:
                while True:
                    await made.wait()
                    made.clear()
                    if any(_THROW.fullmatch(name.decode("ascii", "replace")) for name in names.read_new()):
                        await asyncio.to_thread(self._look)
            finally:
                loop.remove_reader(names.fileno())

    def on_failure_event(self, event: Event) -> None:
        """Take a ``failure`` event."""
        if event.fields.get("where") == "main" and event.fields.get("pid") == self._root:
            self.main_failed = True
        fingerprint = _fingerprint(event)
        if event.fields.get("where") == "log":
            self._logged.append((event.mono_ns, _thread_of(event)))
        now = time.time_ns()
        # When it happened, not when the ring was looked at: a commit in between is not one before it.
        self._heard_wall_ns = now
        seen = min(now, max(event.wall_ns, now - _HEARD_WITHIN_NS))
        task = self._tasks.begin(self._see(event, seen, self._newest.get(fingerprint)))
        self._pending.add(task)
        self._newest[fingerprint] = task
        task.add_done_callback(lambda ended: self._has_ended(fingerprint, ended))

    def _has_ended(self, fingerprint: str, task: asyncio.Task[None]) -> None:
        self._pending.discard(task)
        if self._newest.get(fingerprint) is task:
            del self._newest[fingerprint]

    # -- one incident for what is seen twice ---------------------------------------------------------------------

    async def has_reported(self, request: int) -> bool:
        """An exception escaped from this request (the proxy's number): what else is seen of it is no incident of its own."""
        await self.flush()
        if request not in self._reported:
            await asyncio.sleep(_SETTLE)
            await self.flush()
        return request in self._reported

    async def heard_exception_at(self, wall_ns: int) -> bool:
        """An exception escaped a moment before or after: a line that is logged then is of it."""
        await asyncio.sleep(_SETTLE)
        await self.flush()
        return abs(wall_ns - self._heard_wall_ns) < _SAME_MOMENT_NS

    async def has_just_reported(self, wall_ns: int) -> bool:
        """An exception escaped a moment ago, and had reached a ring by now: a process that ends now ends of that."""
        await self.flush()
        return abs(wall_ns - self._heard_wall_ns) < _SAME_MOMENT_NS

    async def flush(self) -> None:
        """Wait until all that was told so far is written down."""
        await asyncio.to_thread(self._look)
        await asyncio.sleep(0)  # what the look found has now been heard
        if self._pending:
            await asyncio.wait(self._pending)

    def note_answer(self, request: int, incident: int) -> None:
        """The proxy's sighting of a request became an incident; an exception that is told later belongs to it."""
        _remember(self._answered, request, incident)

    # -- one exception -------------------------------------------------------------------------------------------

    async def _see(self, event: Event, now_ns: int, earlier: asyncio.Task[None] | None) -> None:
        """``earlier``: what sees the one before of the same fingerprint."""
        fields = event.fields
        throw = fields.get("throw")
        throw = throw if isinstance(throw, str) and _THROW.fullmatch(throw) else None
        taken, is_held = await self._capture(_fingerprint(event), throw)
        await self._committer.catch_up()
        about = await asyncio.to_thread(find_request, Recording(self._capsule.paths.recording), event)
        if not about and fields.get("where") == "log":
            about = await self._answered_badly(event)
        about["log_begin"] = about.pop("log_offsets", {}).get(str(self._capsule.paths.logs[-1]))
        if about.get("request") is not None:
            _remember(self._reported, about["request"], None)
        ends_service = fields.get("where") == "main" and fields.get("pid") == self._root
        at: CommitId | None = None
        if taken is not None:
            with contextlib.suppress(ReliveError):
                at = (await self._keeper.store(taken)).id
        held = throw if is_held and at is not None else None
        sighting = exception_sighting(fields, about, now_ns, throw=held, ends_service=ends_service)
        evidence = await asyncio.to_thread(self._evidence, event, about.get("request"))
        # The first takes longest, since its commit is stored. If the second came before it, the incident would tell of the second
        # request, with frames of the first in its commit.
        if earlier is not None:
            await asyncio.wait([earlier])
        known = self._answered.get(about["request"]) if about.get("request") is not None else None
        if known is not None:
            await self._keeper.add_evidence(known, evidence)
            return
        incident = await self._keeper.report(sighting, at, evidence)
        self._log.warning(
            "incident", number=incident.number, summary=sighting.summary, times=incident.times, held=held
        )

    async def _answered_badly(self, event: Event) -> dict[str, Any]:
        """The request that failed right after an exception was logged, in a server that the recorder does not know.

        What is logged while requests are served well is of none. Of several that one thread logs before it answers, the last
        is why it failed.
        """
        recording, until = Recording(self._capsule.paths.recording), time.monotonic() + _ANSWERED_WITHIN
        while True:
            await self._committer.catch_up()
            about, may_come = await asyncio.to_thread(
                failed_meanwhile, recording, event.mono_ns, self._reported
            )
            if about:
                await asyncio.to_thread(self._look)
                await asyncio.sleep(0)
                ended = about.pop("ended_mono_ns") or event.mono_ns
                thread = _thread_of(event)
                later = (when for when, who in self._logged if who == thread)
                return {} if any(event.mono_ns < when <= ended for when in later) else about
            if not may_come or time.monotonic() > until:
                return {}
            await asyncio.sleep(_ANSWERED_POLL)

    async def _capture(self, fingerprint: str, throw: str | None) -> tuple[DumpedCommit | None, bool]:
        """The commit at the exception, if there is to be one, and whether the thread stood still in it; it goes on afterwards."""
        file = self._rings / throw if throw is not None else None
        taken, is_held = None, False
        try:
            if file is not None:
                await _appears(file)
            if self._may_commit(fingerprint):
                taken = await self._committer.capture(Trigger.INCIDENT)
                # Still there: the thread has not gone on by itself before the tree was frozen.
                is_held = file is not None and file.exists()
        except (CommitFailed, ProcessGone) as error:
            self._log.error("commit at the exception failed", error=error.as_json())
        finally:
            if file is not None:
                file.unlink(missing_ok=True)
        return taken, is_held

    def _may_commit(self, fingerprint: str) -> bool:
        if self._keeper.has_commit(fingerprint) or not self._limit.allows(fingerprint):
            return False
        now = time.monotonic()
        while self._commits and now - self._commits[0] > _COMMITS_TIME:
            self._commits.popleft()
        if len(self._commits) >= _COMMITS:
            return False
        self._commits.append(now)
        return True

    # -- evidence ------------------------------------------------------------------------------------------------

    def _evidence(self, event: Event, request: int | None) -> Evidence:
        """The package, if it is one, what the request did up to now, and what a fresh process needs to do it again.

        Args:
            request: as the proxy counts.
        """
        package: bytes | None = None
        if event.data:
            try:
                package = self._with_changes(read_package(event.data), event.data)
            except RecordingError as error:
                self._log.warning("an error package is not kept", error=error.as_json())
        self._look()  # what the request did since then
        events: list[Event] = []
        try:
            events = self._events_of(event)
        except RecordingError as error:
            self._log.warning("the events of an incident are not kept", error=error.as_json())
        paths = self._capsule.paths
        return Evidence(
            package,
            events,
            beginning=beginning_for(paths.beginnings, event.fields["pid"]),
            launch=launch_of(self._capsule.facts.spec, self._settings),
            request=self._request_bytes(request),
            bodies=paths.inside / "bodies",
        )

    def _request_bytes(self, request: int | None) -> bytes | None:
        """None where there is none, or it is not whole: it is made again of what the service read of it then."""
        if request is None:
            return None
        try:
            return Exchanges(Recording(self._capsule.paths.recording)).by_number(request).request_bytes()
        except RecordingError:
            return None

    def _with_changes(self, package: ErrorPackage, data: bytes) -> bytes:
        """The package, with the word whether the code was changed since it was committed; found out once for each place."""
        revision = package.revision
        if revision is None:
            return data
        if revision.root not in self._changed and len(self._changed) < _ROOTS_MOST:
            # As the service sees it: its files may be its capsule's own.
            seen = Path(f"/proc/{self._capsule.lead}/root") / revision.root.lstrip("/")
            self._changed[revision.root] = has_changes(seen, revision.commit)
        marked = revision.model_copy(update={"dirty": self._changed.get(revision.root)})
        return package.model_copy(update={"revision": marked}).model_dump_json().encode()

    def _events_of(self, failure: Event) -> list[Event]:
        """The events of the failing request, and those of its process outside of requests meanwhile."""
        recording = Recording(self._capsule.paths.inside)
        pid, number = failure.fields["pid"], failure.request
        own = BothEnds(_EVENTS_MOST)
        outside: deque[Event] = deque(maxlen=_EVENTS_MOST if number else _OUTSIDE_MOST)
        for event in recording.events(after=_recent(recording)):
            if event.fields.get("pid") != pid:
                continue
            if event.request == 0 and (number or event.mono_ns <= failure.mono_ns):
                outside.append(event)
            elif event.request == number and number:
                if event.kind is EventKind.HANDLING_STARTED:
                    own = BothEnds(_EVENTS_MOST)  # those before are of an earlier process of the same pid
                    outside.clear()
                own.add(event)
        last = max((event.mono_ns for event in own.held[-1:]), default=failure.mono_ns)
        found = own.held + [event for event in outside if event.mono_ns <= last]
        return sorted((_without_package(event) for event in found), key=lambda event: event.seq)


def _fingerprint(event: Event) -> str:
    return f"exception {str(event.fields.get('fingerprint'))[:64]}"


def _thread_of(event: Event) -> tuple[Any, ...]:
    """Process and thread, or task."""
    return tuple(event.fields.get(name) for name in ("pid", "thread", "lane"))


def _recent(recording: Recording) -> int:
    """A seq so that only the last two segments are read: a request that goes back further is told from there on."""
    segments = recording.segments()[-2:]
    return int(segments[0].stem) - 1 if segments else 0


def _without_package(event: Event) -> Event:
    if event.kind is not EventKind.FAILURE:
        return event
    return Event(
        event.seq,
        event.mono_ns,
        event.wall_ns,
        event.kind,
        event.connection,
        event.request,
        b"",
        event.fields,
    )


async def _appears(file: Path) -> None:
    """Wait until the thread that said it would has made its file; it may have died instead."""
    until = time.monotonic() + _APPEARS
    while not file.exists() and time.monotonic() < until:
        await asyncio.sleep(_APPEARS_POLL)


def _remember(known: OrderedDict[int, Any], request: int, value: Any) -> None:
    known[request] = value
    while len(known) > _KNOWN_MOST:
        known.popitem(last=False)

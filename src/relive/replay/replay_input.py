"""What is replayed: read from an incident, or a recorded request, and the recordings beside the commit before it."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relive.config import Settings
from relive.errors import RecordingError, RefUnknown, RequestUnknown, StoreError, UsageError
from relive.images.registers import read_places
from relive.model.commit import CommitId, Manifest, TargetKind
from relive.model.dependency import Dependency
from relive.model.incident import FailureKind, Incident, Occurrence, Sighting
from relive.model.life_paths import LifePaths
from relive.model.outcome import End, Fault, Outcome, ThreadPlace
from relive.model.stack import find_stacks
from relive.model.watched import WatchFacts
from relive.protocols.dependencies import unrecorded
from relive.protocols.egress_window import read_egress
from relive.protocols.registry import protocol_of
from relive.recording.connections import Connections, connections_in
from relive.recording.exchanges import Exchange, ExchangeEnd, Exchanges
from relive.recording.reader import Recording
from relive.replay.inprocess_events import EventWindow, read_window, request_at_the_end, request_inside
from relive.replay.outcomes import read_log, read_log_of, recorded_answer, recorded_outcome, with_fault
from relive.replay.plan import ReplayPlan, make_plan
from relive.replay.sequence import sequence_of
from relive.replay.stubs.plan import Stubs
from relive.replay.usual_log import NOTHING_USUAL, UsualLog, usual_log
from relive.replay.workers import workers_of
from relive.store import Store

__all__ = [
    "FailingRequest",
    "HalfServedRequest",
    "ReplayInput",
    "case_of_incident",
    "case_of_request",
    "failing_request",
    "fault_place",
    "hang_limit",
    "open_in_commit",
]

_FATAL_KINDS = (FailureKind.SIGNAL, FailureKind.EXIT, FailureKind.MEMORY)
_LATE_MOST = 1 << 16  # [bytes]
_LEAST_LIMIT = 10.0  # [s] that a replayed request may take
_HANG_LEAST, _HANG_SLOWER = 1.0, 1.5  # [s] and times what it had hung, that a replay waits for an answer
_BROKEN_NS = 1_000_000_000  # after a failure, in which the connections that it broke are seen to end
_SLOWER = 3.0  # a replayed request may take so many times what the recorded one took
_END_OF_TIME = (1 << 63) - 1  # a sequence number behind all


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """What is replayed: a commit, a plan, and the outcome that was recorded.

    Attributes:
        window: what happened inside from the commit to the failure; None where nobody recorded it.
        exchange: the request that failed, also where the service is judged by its death.
        inside: (pid, number in that process) of it; None where that is not known.
        stubs: what the service said to others over the network; None where nobody recorded it.
        failed_mono_ns: when the failure was seen.
        hung_seconds: without an answer for so long a request counts as hanging; None where it did not hang.
        prepare_seconds: how long it took to read all this.
        not_http: clients' connections since the commit without HTTP/1, of which nothing was recorded.
        gaps: places in the recording since the commit at which something is missing.
        unrecorded: servers that it was connected to and nobody recorded.
        cannot_come_back: why no replay can show the failure again; None where one may.
        usual: what the service writes to its log where nothing fails.
        watched_logs: files that a watch read for the service's output beside its standard streams; None: it was not watched.
    """

    service: str
    incident: int | None
    commit: CommitId
    manifest: Manifest
    plan: ReplayPlan
    recorded: Outcome
    earlier: dict[int, Outcome]
    limit: float
    window: EventWindow | None = None
    exchange: Exchange | None = None
    inside: tuple[int, int] | None = None
    stubs: Stubs | None = None
    failed_mono_ns: int = 0
    hung_seconds: float | None = None
    prepare_seconds: float = 0.0
    not_http: int = 0
    gaps: int = 0
    unrecorded: Sequence[Dependency] = ()
    cannot_come_back: str | None = None
    usual: UsualLog = NOTHING_USUAL
    watched_logs: Collection[str] | None = None

    @property
    def upgraded_before(self) -> Exchange | None:
        """The failing request where its connection is in the commit as a stream: what failed is what was said on that since."""
        one, cursor = self.exchange, self.manifest.cursor
        if one is None or cursor is None or not _is_upgraded(one):
            return None
        return one if (one.ended_seq or 0) <= cursor.sequence else None


def _paths_of(settings: Settings, service: str, life: str) -> LifePaths:
    return LifePaths(settings.capsules / service / life)


@dataclass(frozen=True, slots=True)
class FailingRequest:
    """What of a failing request is the same for all commits from which it may be sent again.

    Attributes:
        usual: as of ``ReplayInput``.
        half_served: requests that were open at one of these commits.
    """

    exchange: Exchange
    usual: UsualLog
    half_served: Sequence[Exchange]


def failing_request(
    settings: Settings, incident: Incident, occurrence: Occurrence, cursors: Collection[int]
) -> FailingRequest | None:
    """The request in which an incident failed; None where it was in none that the proxy saw.

    Args:
        cursors: of the commits from which it may be sent again, in the recording.

    Raises:
        RecordingError: it is not in the recording.
    """
    sighting = occurrence.sighting
    if sighting.request is None:
        return None
    paths = _paths_of(settings, incident.service, incident.life)
    exchanges = Exchanges(Recording(paths.recording))
    exchange = exchanges.by_number(sighting.request)
    return FailingRequest(exchange, _usual(paths, exchange), exchanges.open_at_any(cursors))


def case_of_incident(
    settings: Settings,
    store: Store,
    incident: Incident,
    occurrence: Occurrence,
    *,
    alone: FailingRequest | None = None,
) -> ReplayInput:
    """Prepare the replay of one time that an incident was seen, from the nearest commit before it.

    The commit before the latest time is the likelier to hold a state that was wrong already.

    Args:
        alone: of that time: nothing else is sent but what the commit holds half served, so the rest of the recording is not read;
            None: with the requests since the commit.

    Raises:
        RefUnknown: there is no commit before it.
        RecordingError: the request is not in the recording, or was not kept whole.
    """
    began = time.monotonic()
    if occurrence.before is None:
        raise RefUnknown(
            f"incident {incident.number} has no commit before it",
            cause="the service failed before the first commit, or ran with --every never",
            remedy="run it with --every request or a shorter time, and wait for the failure to come back",
        )
    manifest = store.facts(occurrence.before)
    paths = _paths_of(settings, incident.service, incident.life)
    log = paths.logs[1]
    sighting = occurrence.sighting
    ends_service = sighting.kind in _FATAL_KINDS or sighting.exit_status is not None
    subject = sighting.request if not ends_service else None
    if sighting.kind is FailureKind.EXCEPTION and subject is None and not ends_service:
        raise UsageError(
            f"incident {incident.number} cannot be judged by a replay",
            cause="its exception escaped outside of any request that the proxy recorded, and the service went on",
            remedy=f"`relive debug {incident.number}` opens a debugger where it was raised",
        )
    exchanges = Exchanges(Recording(paths.recording))
    exchange = alone.exchange if alone is not None else None
    if exchange is None and sighting.request is not None:
        exchange = exchanges.by_number(sighting.request)
    seen_mono_ns = manifest.taken_monotonic_ns + sighting.seen_wall_ns - manifest.taken_wall_ns
    # Lines about a failure often follow its answer, so the end is where the log was when the incident was written down.
    lines, after = read_log_of(log, sighting, sighting.log_begin or 0, occurrence.log_end, exchange)
    if manifest.target.kind is TargetKind.CONTAINER and not lines and occurrence.log_end is not None:
        lines = _late_lines(log, occurrence.log_end)
    recorded = recorded_outcome(sighting, exchange, lines, after)
    places = _places(store, incident.at)
    if recorded.end is End.NO_ANSWER:
        recorded = recorded.model_copy(update={"places": _moved(store, places, occurrence.before)})
    if recorded.signal not in (None, signal.SIGKILL):  # of which no tracer hears before the end
        recorded = with_fault(recorded, _recorded_fault(sighting, manifest.target.root, places))
    hung = None
    if sighting.kind is FailureKind.HANG and exchange is not None:
        # Whether it was answered in the end, and when, depends on when one asks; that it hung does not.
        hung = max(0.0, (sighting.seen_wall_ns - exchange.started_wall_ns) / 1e9)
    case = _case(
        store,
        exchanges,
        occurrence.before,
        incident.number,
        exchange,
        subject,
        seen_mono_ns,
        recorded,
        hung,
        sighting.open_requests,
        alone,
    )
    case = replace(case, cannot_come_back=_sent_from_outside(sighting))
    usual = alone.usual if alone is not None else _usual(paths, exchange)
    return _with_recordings(case, paths, exchange, usual, seen_mono_ns, began)


@dataclass(frozen=True, slots=True)
class HalfServedRequest:
    """The failing request as a commit holds it, half served: what of it is still to come, and how it had ended."""

    manifest: Manifest
    plan: ReplayPlan
    recorded: Outcome
    usual: UsualLog


def open_in_commit(
    settings: Settings, store: Store, incident: Incident, commit: CommitId
) -> HalfServedRequest | None:
    """Of an incident's commit at the failure; None where the proxy had no request open in it that failed so."""
    sighting = incident.sighting
    if sighting.request is None:
        return None
    paths = _paths_of(settings, incident.service, incident.life)
    try:
        manifest = store.facts(commit)
        exchange = Exchanges(Recording(paths.recording)).by_number(sighting.request)
    except (StoreError, RecordingError):
        return None
    plan = make_plan(manifest, [], [exchange], exchange.number, exchange.started_mono_ns)
    if not any(step.continues for step in plan.steps):
        return None
    lines = read_log(paths.logs[1], sighting.log_begin or 0, incident.log_end)
    return HalfServedRequest(
        manifest, plan, recorded_outcome(sighting, exchange, lines), _usual(paths, exchange)
    )


def _late_lines(log: Path, begin: int) -> list[str]:
    """What a container's engine handed over only after the incident was written down: the lines up to the first stack."""
    lines = read_log(log, begin, begin + _LATE_MOST)
    found = find_stacks(lines)
    if not found:
        return []
    ends = (at + 1 for at, line in enumerate(lines) if line.strip() == found[0].text[-1].strip())
    return lines[: next(ends, len(lines))]


def _places(store: Store, commit: CommitId | None) -> list[ThreadPlace] | None:
    """Where the threads of a commit stood; None where there is none, or it is gone."""
    if commit is None:
        return None
    with contextlib.suppress(StoreError), tempfile.TemporaryDirectory(prefix="relive-") as scratch:
        store.images.lay_out_small(store.facts(commit), Path(scratch))
        return read_places(Path(scratch))
    return None


def _moved(store: Store, places: list[ThreadPlace] | None, before: CommitId) -> list[ThreadPlace] | None:
    """Those that stood elsewhere in the commit before: the others had nothing to do with the failure."""
    if places is None:
        return None
    earlier = {(one.thread, one.instruction, one.stack) for one in _places(store, before) or []}
    return [one for one in places if (one.thread, one.instruction, one.stack) not in earlier]


def fault_place(sighting: Sighting, places: Sequence[ThreadPlace] | None) -> ThreadPlace | None:
    """Where the thread stood that got a fatal signal.

    Args:
        places: of the threads in the commit at the failure, for incidents of an older Relive, which hold only those.
    """
    if sighting.thread is not None and sighting.instruction is not None and sighting.stack is not None:
        return ThreadPlace(thread=sighting.thread, instruction=sighting.instruction, stack=sighting.stack)
    return next((one for one in places or () if one.thread == sighting.thread), None)


def _recorded_fault(sighting: Sighting, root: int, places: list[ThreadPlace] | None) -> Fault:
    assert sighting.signal is not None
    return Fault(
        process=sighting.pid or 0,
        is_root=sighting.pid in (None, root),
        signal=sighting.signal,
        code=sighting.signal_code,
        address=sighting.address,
        place=fault_place(sighting, places),
        callers=sighting.callers,
    )


def _sent_from_outside(sighting: Sighting) -> str | None:
    if not sighting.from_outside:
        return None
    return f"the signal was sent {sighting.sender}, so it cannot come back"


def case_of_request(settings: Settings, store: Store, commit: CommitId, number: int) -> ReplayInput:
    """Prepare the replay of one recorded request from a given commit.

    Raises:
        UsageError: nothing was recorded of the commit's target.
        RequestUnknown, RequestTruncated: the request cannot be sent again, or began before the commit.
    """
    began = time.monotonic()
    manifest = store.facts(commit)
    if manifest.target.life is None:
        raise _not_recorded_at_all(manifest, commit)
    paths = _paths_of(settings, manifest.target.name, manifest.target.life)
    log = paths.logs[1]
    exchanges = Exchanges(Recording(paths.recording))
    if not exchanges.recording.segments():
        raise _not_recorded_at_all(manifest, commit)
    exchange = exchanges.by_number(number)
    if not _began_after(exchange, manifest):
        raise RequestUnknown(
            f"request {number} began before commit {commit[:10]}",
            remedy="name an earlier commit (`relive log`)",
        )
    before, after = _log_window(exchange, log)
    recorded = recorded_answer(exchange, read_log(log, before, after))
    failed = exchange.ended_mono_ns or exchange.started_mono_ns
    case = _case(store, exchanges, commit, None, exchange, number, failed, recorded)
    return _with_recordings(case, paths, exchange, _usual(paths, exchange), failed, began)


def _not_recorded_at_all(manifest: Manifest, commit: CommitId) -> UsageError:
    return UsageError(
        f"the requests of commit {commit[:10]} cannot be replayed",
        cause=f"this host has no recording of requests of {manifest.target.name!r} for it",
        remedy="replay on the host that recorded it, or start the service with `relive run --listen PORT`",
    )


def _began_after(exchange: Exchange, manifest: Manifest) -> bool:
    """By the commit's place in the recording; by the clock where what records was dead or absent when it was taken."""
    if manifest.cursor is not None:
        return exchange.started_seq > manifest.cursor.sequence
    return exchange.started_mono_ns > manifest.taken_monotonic_ns


def _with_recordings(
    case: ReplayInput,
    paths: LifePaths,
    exchange: Exchange | None,
    usual: UsualLog,
    failed_mono_ns: int,
    began: float,
) -> ReplayInput:
    """The case with what was recorded beside its requests; ``began``: monotonic [s], when its preparation did."""
    case = _with_inside(case, paths, exchange, failed_mono_ns)
    egress = read_egress(paths.egress, case.manifest.taken_monotonic_ns, failed_mono_ns)
    return replace(
        case,
        exchange=exchange,
        usual=usual,
        stubs=Stubs(egress, protocol_of, authority=paths.authority) if egress is not None else None,
        failed_mono_ns=failed_mono_ns,
        unrecorded=unrecorded(case.manifest.connections, paths.egress, paths.inside),
        watched_logs=_watched_logs(paths),
        prepare_seconds=time.monotonic() - began,
    )


def _watched_logs(paths: LifePaths) -> Collection[str] | None:
    """None also where nobody can read what was watched: its standard error is the branch's then."""
    try:
        return WatchFacts.model_validate_json(paths.watch.read_bytes()).spec.log_files
    except (OSError, ValueError):
        return None


def _usual(paths: LifePaths, exchange: Exchange | None) -> UsualLog:
    if exchange is None:
        return NOTHING_USUAL
    return usual_log(Recording(paths.recording), paths.logs[1], exchange.started_seq)


def _with_inside(
    case: ReplayInput, paths: LifePaths, exchange: Exchange | None, failed_mono_ns: int
) -> ReplayInput:
    """The case with what was recorded inside the service."""
    since = case.manifest.taken_monotonic_ns
    if exchange is not None:
        since = min(since, exchange.started_mono_ns)
    window = read_window(paths.inside, since, failed_mono_ns)
    if window is None:
        return case
    inside = (
        request_inside(window.events, exchange) if exchange is not None else request_at_the_end(window.events)
    )
    recorded = case.recorded
    if inside is not None:
        taken = case.manifest.taken_monotonic_ns if replace(case, exchange=exchange).upgraded_before else 0
        since_then = [one for one in window.events if one.mono_ns > taken]
        recorded = recorded.model_copy(update={"events": sequence_of(since_then, *inside)})
    workers = workers_of(window.events, [step.exchange for step in case.plan.steps])
    steps = [replace(step, worker=workers.get(step.exchange.number)) for step in case.plan.steps]
    plan = replace(case.plan, steps=steps)
    return replace(case, window=window, inside=inside, recorded=recorded, plan=plan)


def hang_limit(hung_seconds: float) -> float:
    """Seconds that a replay waits for the answer to a request that had hung for so long."""
    return _HANG_LEAST + hung_seconds * _HANG_SLOWER


def _log_window(exchange: Exchange | None, log: Path) -> tuple[int, int | None]:
    if exchange is None:
        return 0, None
    after = exchange.log_offsets_after.get(str(log))
    return exchange.log_offsets_before.get(str(log), 0), after


def _case(
    store: Store,
    exchanges: Exchanges,
    commit: CommitId,
    incident: int | None,
    exchange: Exchange | None,
    subject: int | None,
    failed_mono_ns: int,
    recorded: Outcome,
    hung: float | None = None,
    taken_along: Collection[int] = (),
    alone: FailingRequest | None = None,
) -> ReplayInput:
    """``taken_along``: requests that a death ended; ``alone``: as of ``case_of_incident``."""
    manifest = store.facts(commit)
    last = (
        exchange.ended_seq or exchange.started_seq
        if exchange is not None and subject is not None and hung is None and not _is_upgraded(exchange)
        else _END_OF_TIME  # a hang may be of two requests: those that came while it was open belong to it
    )
    cursor = manifest.cursor.sequence if manifest.cursor is not None else 0
    # Without a cursor (what records was dead, or not there yet, at the commit) the clock has to tell what came after it.
    since = 0 if manifest.cursor is not None else manifest.taken_monotonic_ns
    if alone is not None:
        begun = [alone.exchange] if alone.exchange.started_seq > cursor else []
        still_open = [one for one in alone.half_served if one.is_open_at(cursor)]
        found, gaps, not_http = None, 0, 0
    else:
        still_open = exchanges.open_at(cursor) if manifest.cursor is not None else []
        begun, gaps = exchanges.begun_in(cursor, last), exchanges.gaps_in(cursor, last)
        settled = manifest.cursor.settled if manifest.cursor is not None else 0
        found = connections_in(exchanges.recording, cursor, last, settled=settled)
        not_http = _not_recorded(found, since, failed_mono_ns)
        found = found.between(since, failed_mono_ns)
    begun = [one for one in begun if one.number == subject or since < one.started_mono_ns <= failed_mono_ns]
    if subject is not None and exchange is not None:
        exchange.request_bytes()  # raises when it cannot be sent again
    plan = make_plan(manifest, begun, still_open, subject, failed_mono_ns, found)
    seconds = exchange.seconds if exchange is not None and exchange.seconds is not None else 0.0
    earlier = {
        step.exchange.number: recorded_answer(step.exchange, [])
        for step in plan.steps
        if step.exchange.number not in (subject, *taken_along) and not step.continues
    }
    limit = max(_LEAST_LIMIT, seconds * _SLOWER) if hung is None else hang_limit(hung)
    return ReplayInput(
        *(manifest.target.name, incident, commit, manifest, plan, recorded, earlier, limit),
        hung_seconds=hung,
        gaps=gaps,
        not_http=not_http,
    )


def _is_upgraded(exchange: Exchange) -> bool:
    """What failed is what was said after its answer."""
    return exchange.ended is ExchangeEnd.UPGRADED


def _not_recorded(found: Connections, since_ns: int, failed_mono_ns: int) -> int:
    """Connections without HTTP/1 of which an older Relive, or one that came in their middle, recorded only that they were there."""
    known = {one.connection for one in found.turns} | {one.connection for one in found.said}
    ended = [one for one in found.closings if since_ns < one.mono_ns <= failed_mono_ns + _BROKEN_NS]
    return sum(not one.is_http and one.connection not in known for one in ended)

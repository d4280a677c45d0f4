"""``replay``: from a commit before the failure, in fresh sealed branches, the recorded requests again, and a verdict each.

The branches are restored one after the other and then run side by side; each is stopped as soon as its outcome is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from relive.config import Settings
from relive.errors import BranchUnknown, RecordingError, RefUnknown, ReliveError, RequestUnknown, UsageError
from relive.model.branch import Clock
from relive.model.capsule import LifePaths
from relive.model.commit import CommitId, Manifest
from relive.model.incident import FailureKind, Incident
from relive.model.outcome import End, Outcome, Replay, Run, Steps, Verdict, VerdictKind
from relive.protocols.known import protocol_of
from relive.record.events import EventKind
from relive.record.exchanges import Exchange, Exchanges
from relive.record.reading import Recording
from relive.record.rings import RingMode
from relive.replay.answers import Answers, Calls
from relive.replay.drain import BranchDrain
from relive.replay.inside import Window, read_window, request_again, request_at_the_end, request_inside
from relive.replay.outcomes import died_outcome, read_log, recorded_answer, recorded_outcome, replayed_answer
from relive.replay.plan import Pace, Plan, make_plan
from relive.replay.sender import Answer, Sender
from relive.replay.sequence import miss_words, misses_of, sequence_of
from relive.replay.stubs.plan import Stubs
from relive.replay.stubs.speed import AS_RECORDED, Speed
from relive.replay.stubs.stage import Stage
from relive.replay.stubs.told import stub_words
from relive.replay.stubs.window import read_egress
from relive.replay.verdict import compare, same_answer
from relive.sandbox.branch import Branch, restore
from relive.sandbox.seal import Seal
from relive.store import Store

__all__ = [
    "Case",
    "Wishes",
    "answers_for",
    "case_of_incident",
    "case_of_request",
    "replay",
    "service_address",
]

_FATAL_KINDS = (FailureKind.SIGNAL, FailureKind.EXIT, FailureKind.MEMORY)
_LEAST_LIMIT = 10.0  # [s] that a replayed request may take
_SLOWER = 3.0  # a replayed request may take so many times what the recorded one took
_END_OF_TIME = (1 << 63) - 1  # a sequence number behind all
_NOTED_MISSES = 5
_MOST_MISSES = 100
_HANDLER_SETTLE = 1.0  # [s] after the answer, for the end of its handler
_LOG_SETTLE = 0.05  # [s] after the answer, for log lines that follow it


@dataclass(frozen=True, slots=True)
class Wishes:
    """How to replay.

    Attributes:
        times: number of runs; jobs: branches that live at one time.
        ignore: parts of answers that may differ, see ``verdict.compare``.
        limit: seconds for the judged request; None: from what was recorded.
        lazily: branches run before their memory is all there.
        calls: who answers what the service asks others for.
        on_miss: kind of event, or "*", to what becomes of a call without a recorded answer: "fail", "pass", or a word of stubs
            (``protocols.known``), to which inside the service such a call is passed.
        speed: recorded times, of requests and of stubs' answers, are divided by it.
    """

    times: int = 1
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    pace: Pace = Pace.RECORDED
    clock: Clock = Clock.RECORDED
    ignore: Collection[str] = ()
    limit: float | None = None
    lazily: bool = False
    calls: Calls = Calls.RECORDED
    on_miss: Mapping[str, str] = field(default_factory=dict)
    speed: Speed = AS_RECORDED


@dataclass(frozen=True, slots=True)
class Case:
    """What is replayed: a commit, a plan, and the outcome that was recorded.

    Attributes:
        window: what happened inside from the commit to the failure; None where nobody recorded it.
        exchange: the request that failed, also where the service is judged by its death.
        inside: (pid, number in that process) of it; None where that is not known.
        stubs: what the service said to others over the network; None where nobody recorded it.
        failed_mono_ns: when the failure was seen.
        prepare_seconds: how long it took to read all this.
    """

    service: str
    incident: int | None
    commit: CommitId
    manifest: Manifest
    plan: Plan
    recorded: Outcome
    earlier: dict[int, Outcome]
    limit: float
    window: Window | None = None
    exchange: Exchange | None = None
    inside: tuple[int, int] | None = None
    stubs: Stubs | None = None
    failed_mono_ns: int = 0
    prepare_seconds: float = 0.0


def _paths_of(settings: Settings, service: str, life: str) -> LifePaths:
    return LifePaths(settings.capsules / service / life)


def case_of_incident(settings: Settings, store: Store, incident: Incident, *, first: bool = False) -> Case:
    """Prepare the replay of an incident from the nearest commit before it.

    Args:
        first: take the first time it was seen; else the latest, whose commit is the likelier to hold a state that was
            wrong already.

    Raises:
        RefUnknown: there is no commit before it.
        RecordingError: the request is not in the recording, or was not kept whole.
    """
    began = time.monotonic()
    occurrence = incident.occurrence(first=first)
    if occurrence.before is None:
        raise RefUnknown(
            f"incident {incident.number} has no commit before it",
            cause="the service failed before the first commit, or ran with --every never",
            remedy="run it with --every request or a shorter time, and wait for the failure to come back",
        )
    manifest = store.manifest(occurrence.before)
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
    exchange = exchanges.by_number(sighting.request) if sighting.request is not None else None
    seen_mono_ns = manifest.taken_monotonic_ns + sighting.seen_wall_ns - manifest.taken_wall_ns
    # Lines about a failure often follow its answer, so the end is where the log was when the incident was written down.
    lines = read_log(log, sighting.log_begin or 0, occurrence.log_end)
    recorded = recorded_outcome(sighting, exchange, lines)
    case = _case(
        store, exchanges, occurrence.before, incident.number, exchange, subject, seen_mono_ns, recorded
    )
    return _with_recordings(case, paths, exchange, seen_mono_ns, began)


def case_of_request(settings: Settings, store: Store, commit: CommitId, number: int) -> Case:
    """Prepare the replay of one recorded request from a given commit.

    Raises:
        UsageError: the commit is of a target that was not recorded, or was taken after the request.
        RequestUnknown, RequestTruncated: the request cannot be sent again.
    """
    began = time.monotonic()
    manifest = store.manifest(commit)
    if manifest.cursor is None or manifest.target.life is None:
        raise UsageError(
            f"commit {commit[:10]} has no recording",
            cause="its target ran without --listen",
            remedy="replay an incident instead",
        )
    paths = _paths_of(settings, manifest.target.name, manifest.target.life)
    log = paths.logs[1]
    exchanges = Exchanges(Recording(paths.recording))
    exchange = exchanges.by_number(number)
    if exchange.started_seq <= manifest.cursor.sequence:
        raise RequestUnknown(
            f"request {number} began before commit {commit[:10]}",
            remedy="name an earlier commit (`relive log`)",
        )
    before, after = _log_window(exchange, log)
    recorded = recorded_answer(exchange, read_log(log, before, after))
    failed = exchange.ended_mono_ns or exchange.started_mono_ns
    case = _case(store, exchanges, commit, None, exchange, number, failed, recorded)
    return _with_recordings(case, paths, exchange, failed, began)


def _with_recordings(
    case: Case, paths: LifePaths, exchange: Exchange | None, failed_mono_ns: int, began: float
) -> Case:
    """The case with what was recorded beside its requests; ``began``: monotonic [s], when its preparation did."""
    case = _with_inside(case, paths, exchange, failed_mono_ns)
    egress = read_egress(paths.egress, case.manifest.taken_monotonic_ns, failed_mono_ns)
    return replace(
        case,
        stubs=Stubs(egress, protocol_of, authority=paths.authority) if egress is not None else None,
        failed_mono_ns=failed_mono_ns,
        prepare_seconds=time.monotonic() - began,
    )


def _with_inside(case: Case, paths: LifePaths, exchange: Exchange | None, failed_mono_ns: int) -> Case:
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
        recorded = recorded.model_copy(update={"events": sequence_of(window.events, *inside)})
    return replace(case, window=window, exchange=exchange, inside=inside, recorded=recorded)


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
) -> Case:
    manifest = store.manifest(commit)
    last = (
        exchange.ended_seq or exchange.started_seq
        if exchange is not None and subject is not None
        else _END_OF_TIME
    )
    cursor = manifest.cursor.sequence if manifest.cursor is not None else 0
    # Without a cursor (nobody recorded yet when the commit was taken) the clock has to tell what came after it.
    since = 0 if manifest.cursor is not None else manifest.taken_monotonic_ns
    begun = [
        one
        for one in exchanges.begun_in(cursor, last)
        if one.number == subject or since < one.started_mono_ns <= failed_mono_ns
    ]
    still_open = exchanges.open_at(cursor) if manifest.cursor is not None else []
    if subject is not None and exchange is not None:
        exchange.request_bytes()  # raises when it cannot be sent again
    plan = make_plan(manifest, begun, still_open, subject, failed_mono_ns)
    seconds = exchange.seconds if exchange is not None and exchange.seconds is not None else 0.0
    earlier = {
        step.exchange.number: recorded_answer(step.exchange, [])
        for step in plan.steps
        if step.exchange.number != subject and not step.continues
    }
    limit = max(_LEAST_LIMIT, seconds * _SLOWER)
    return Case(manifest.target.name, incident, commit, manifest, plan, recorded, earlier, limit)


def answers_for(case: Case, wishes: Wishes) -> Answers | None:
    """What a branch of the case is answered with; None where nothing is to be, or was recorded inside."""
    if case.window is None or wishes.calls is not Calls.RECORDED:
        return None
    words = {kind: word if word in ("fail", "pass") else "pass" for kind, word in wishes.on_miss.items()}
    policy = {"*": "fail", **words}
    return Answers(case.window, case.manifest.taken_monotonic_ns, policy, wishes.clock)


async def replay(
    settings: Settings,
    store: Store,
    case: Case,
    wishes: Wishes,
    progress: Callable[[int], None] = lambda _done: None,
) -> Replay:
    """Run the case as often as wished.

    A branch that cannot be restored gives a run with the verdict "failed to restore" and does not end the others.
    Call it from a process with one thread.
    """
    slots = asyncio.Semaphore(max(1, wishes.jobs))
    answers = answers_for(case, wishes)
    done = 0

    async def one(number: int) -> Run:
        nonlocal done
        async with slots:
            run = await _run(settings, store, case, wishes, answers, number)
        done += 1
        progress(done)
        return run

    runs = await asyncio.gather(*(one(number + 1) for number in range(wishes.times)))
    request = case.plan.subject
    return Replay(
        service=case.service,
        incident=case.incident,
        request=request,
        commit=case.commit,
        recorded=case.recorded,
        runs=list(runs),
        prepare_seconds=case.prepare_seconds,
    )


async def _run(
    settings: Settings, store: Store, case: Case, wishes: Wishes, answers: Answers | None, number: int
) -> Run:
    began = time.monotonic()
    stubs = case.stubs if wishes.calls is Calls.RECORDED else None
    stage = Stage(stubs, wishes.speed, wishes.ignore, wishes.on_miss)
    try:
        branch = restore(
            settings,
            store,
            case.commit,
            clock=wishes.clock,
            lazily=wishes.lazily,
            is_owned=True,
            recorder=RingMode.FREE if answers is None else RingMode.REPLAY,
            lay_beside=None if answers is None else answers.lay,
            answered=case.plan.answered,
            outside=stage.outside,
        )
    except ReliveError as error:
        return _not_restored(number, error)
    restored = time.monotonic()
    drain = BranchDrain(branch.rings)
    draining = asyncio.create_task(drain.run())
    try:
        stage.open(branch, case.manifest)
        opened = time.monotonic()
        outcome, earlier, forwarded = await _live(branch, case, wishes)
        if answers is not None:
            await _handler_ended(drain, case)
        draining.cancel()
        drain.close()
        outcome = _with_events(outcome, drain, case) if answers is not None else outcome
        answered = time.monotonic()
        await stage.close()
        outcome = _with_stubs(outcome, stage, case, is_alone=answers is None)
        closed = time.monotonic()
        outcome = _with_seal(outcome, branch)
        lost = branch.memory_lost
        sealed = time.monotonic()
    finally:
        draining.cancel()
        await stage.close()
        branch.stop()
    if lost is not None:  # whatever was seen of it is not the service's doing
        return _not_restored(number, lost)
    judged = time.monotonic()
    verdict = _with_notes(
        compare(case.recorded, outcome, ignore=wishes.ignore, earlier=earlier, request=case.plan.subject),
        case.window if answers is not None else None,
        outcome,
        drain.troubles,
    )
    seal_seconds = branch.facts.seal_us / 1e6
    return Run(
        number=number,
        verdict=verdict,
        outcome=outcome,
        forwarded=forwarded,
        restore_us=branch.facts.restore_us,
        seconds=time.monotonic() - began,
        steps=Steps(
            restore=restored - began - stage.seconds - seal_seconds,
            seal=seal_seconds + sealed - closed,
            stubs=stage.seconds + opened - restored + closed - answered,
            request=answered - opened,
            compare=time.monotonic() - judged,
        ),
    )


def _with_stubs(outcome: Outcome, stage: Stage, case: Case, *, is_alone: bool) -> Outcome:
    """The outcome with what the stubs did; ``is_alone``: nobody inside the service gave answers too."""
    told = stage.told(case.failed_mono_ns if is_alone else None)
    if told is None:
        return outcome
    misses = [*outcome.misses, *stage.misses()]
    return outcome.model_copy(update={"stubs": told, "misses": misses[:_MOST_MISSES]})


def _with_seal(outcome: Outcome, branch: Branch) -> Outcome:
    """The outcome with the seal's counters as they are at the end, where the branch still has them."""
    seal = _seal(branch)
    if seal is None:
        return outcome
    return outcome.model_copy(update={"packets_left": seal.packets_left, "refused": seal.refused})


async def _handler_ended(drain: BranchDrain, case: Case) -> None:
    """Wait until the handler of the judged request has told of its end, which follows the answer, if it did when recorded."""
    recorded = case.recorded.events or ()
    if not any(event.kind == EventKind.HANDLING_ENDED for event in recorded):
        return
    deadline = time.monotonic() + _HANDLER_SETTLE
    while time.monotonic() < deadline:
        inside = _inside_branch(drain, case)
        if inside is not None and drain.has_handled(*inside):
            return
        await asyncio.sleep(0.01)


def _inside_branch(drain: BranchDrain, case: Case) -> tuple[int, int] | None:
    """(pid, number) of the judged request in the branch."""
    if case.inside is None:
        return None
    return request_again(drain.events, case.inside, case.exchange)


def _with_events(outcome: Outcome, drain: BranchDrain, case: Case) -> Outcome:
    """The outcome with what happened inside the branch."""
    inside = _inside_branch(drain, case)
    events = sequence_of(drain.events, *inside) if inside is not None else None
    return outcome.model_copy(update={"events": events, "misses": misses_of(drain.events)})


def _with_notes(
    verdict: Verdict, window: Window | None, outcome: Outcome, troubles: Collection[str]
) -> Verdict:
    """The verdict with what makes the comparison of events weaker, and what had no recorded answer."""
    misses = outcome.misses
    notes = [miss_words(miss) for miss in misses[:_NOTED_MISSES]]
    if len(misses) > _NOTED_MISSES:
        notes.append(f"{len(misses) - _NOTED_MISSES} more calls had no recorded answer")
    if outcome.stubs is not None:
        notes += stub_words(outcome.stubs)
    if window is not None and window.lost:
        notes.append(
            f"{window.lost} events were lost when the service was recorded; calls among them have no answer"
        )
    if window is not None and window.left_out:
        notes.append(f"{window.left_out} events before the failure were too many to be laid out")
    if window is not None and window.damage:
        notes.append(f"what was recorded inside cannot be read to its end: {window.damage}")
    return verdict.model_copy(update={"inside": [*verdict.inside, *notes, *troubles]})


def _not_restored(number: int, error: ReliveError) -> Run:
    verdict = Verdict(
        kind=VerdictKind.FAILED_TO_RESTORE,
        difference=str(error),
        notes=[error.remedy] if error.remedy else [],
    )
    return Run(number=number, verdict=verdict, outcome=None, forwarded=0, restore_us=None, seconds=0.0)


async def _live(branch: Branch, case: Case, wishes: Wishes) -> tuple[Outcome, str | None, int]:
    """Returns the outcome, the first earlier difference, and how many requests were sent beside the subject."""
    plan = case.plan
    died = _watch_root(branch)
    log = branch.log("stderr")
    log_from = 0

    def note_log() -> None:
        nonlocal log_from
        log_from = log.stat().st_size

    limit = wishes.limit or case.limit
    peers, branch.peers = branch.peers, {}
    cursor = case.manifest.cursor.sequence if case.manifest.cursor is not None else 0
    address = service_address(case.manifest)
    sender = Sender(
        branch.facts.init, address, peers, pace=wishes.pace, limit=limit, cursor=cursor, speed=wishes.speed
    )
    began = time.monotonic()
    try:
        if plan.steps:
            await sender.carry_out(plan, died, note_log)
        if plan.subject is None and not died.is_set():
            await _wait_for_death(died, plan, began, limit)
        await asyncio.sleep(_LOG_SETTLE)
        seal = _seal(branch)
        lines = read_log(log, log_from)
        if plan.subject is None:
            outcome = died_outcome(await _status(branch, died), lines, seal, time.monotonic() - began)
        else:
            outcome = replayed_answer(sender.answers.get(plan.subject, Answer()), lines, seal)
    finally:
        sender.close()
    return (
        outcome,
        _first_earlier(case, sender, wishes.ignore),
        sum(n != plan.subject for n in sender.answers),
    )


def service_address(manifest: Manifest) -> tuple[str, int]:
    """Where to send: the port that the recorded clients had reached, or the lowest one the service listens on."""
    inward = [connection.local for connection in manifest.connections if connection.inward]
    host, port = inward[0] if inward else (manifest.listening[0] if manifest.listening else ("127.0.0.1", 0))
    if host in ("0.0.0.0", "::"):
        return ("127.0.0.1" if host == "0.0.0.0" else "::1"), port
    return host, port


def _watch_root(branch: Branch) -> asyncio.Event:
    died = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(branch.facts.root)
    except ProcessLookupError:
        died.set()
        return died

    def gone() -> None:
        loop.remove_reader(handle)
        os.close(handle)
        died.set()

    loop.add_reader(handle, gone)
    return died


async def _wait_for_death(died: asyncio.Event, plan: Plan, began: float, limit: float) -> None:
    left = plan.until_ns / 1e9 + limit - (time.monotonic() - began)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(died.wait(), max(limit, left))


async def _status(branch: Branch, died: asyncio.Event) -> int | None:
    if not died.is_set():
        return None
    for _ in range(100):  # relive-init writes it right after the root's end
        status = branch.wait_status
        if status is not None:
            return status
        await asyncio.sleep(0.01)
    return 9


def _seal(branch: Branch) -> Seal | None:
    try:
        return branch.seal()
    except BranchUnknown:
        return None


def _first_earlier(case: Case, sender: Sender, ignore: Collection[str]) -> str | None:
    for number, recorded in sorted(case.earlier.items()):
        answer = sender.answers.get(number)
        if answer is None or recorded.end is End.NO_ANSWER:
            continue
        with contextlib.suppress(RecordingError):
            difference = same_answer(recorded, replayed_answer(answer, [], None), ignore)
            if difference is not None:
                return f"request {number}: {difference}"
    return None

"""``replay``: from a commit before the failure, in fresh sealed branches, the recorded requests again, and a verdict each.

The branches are restored one after the other and then run side by side; each is stopped as soon as its outcome is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from relive.config import Settings
from relive.errors import RecordingError, ReliveError
from relive.model.branch import Clock, unwritable_words
from relive.model.outcome import End, Measured, Outcome, Replay, Run, Steps, Verdict, VerdictKind
from relive.recording.events import Event, EventKind
from relive.replay.answers import AnswerFiles, Calls
from relive.replay.branch_supply import BranchNeed, BranchSupply
from relive.replay.conversations import Conversed, conversed_words
from relive.replay.deaths import (
    SETTLE,
    Deaths,
    Watched,
    places_of,
    seconds_from_last_message,
    seconds_left_to_die,
)
from relive.replay.inprocess_events import EventWindow, request_again
from relive.replay.network import Network
from relive.replay.outcomes import (
    died_outcome,
    read_log,
    replayed_answer,
    with_fault,
    with_memory_used_up,
    with_worker_exit,
)
from relive.replay.plan import Pace
from relive.replay.played import played_words
from relive.replay.precedence import inside_policy
from relive.replay.received import ReceivedAnswer
from relive.replay.replay_input import ReplayInput
from relive.replay.ring_collector import BranchDrain
from relive.replay.sender import Sender, service_address
from relive.replay.sequence import miss_words, misses_of, sequence_of
from relive.replay.stubs.lifecycle import StubLifecycle
from relive.replay.stubs.report import stub_words
from relive.replay.stubs.speed import AS_RECORDED, Speed
from relive.replay.verdict import Earlier, compare, ended_otherwise, same_answer
from relive.replay.workers import elsewhere_words
from relive.sandbox.branch import Branch
from relive.store import Store

__all__ = ["ReplayOptions", "answers_for", "replay"]

_NOTED_MISSES = 5
_MOST_MISSES = 100
_HANDLER_SETTLE = 1.0  # [s] after the answer, for the end of its handler
_LOG_SETTLE = 0.05  # [s] after the answer, for log lines that follow it


class Meter(Protocol):
    """Measures a branch; ``close`` lets go of it, and may be called again."""

    def end(self) -> Measured:
        """What was measured until now; once."""

    def close(self) -> None:
        """Let go."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay.

    Attributes:
        times: number of runs; jobs: branches that live at one time.
        ignore: parts of answers that may differ, see ``verdict.compare``.
        limit: seconds for the judged request; None: from what was recorded.
        lazily: branches run before their memory is all there.
        calls: who answers what the service asks others for.
        on_miss: kind of event, or "*", to what becomes of a call without a recorded answer: "fail", "pass", or a word of stubs
            (``protocols.registry``), to which inside the service such a call is passed.
        speed: recorded times, of requests and of stubs' answers, are divided by it.
        sees: told of the first process of each branch before it is stopped.
        changes: given each branch before anything is sent; what it raises ends the replay.
        measures: makes what measures a branch from before its requests are sent; None: nobody does.
        hears: told how the requests beside the judged one ended in a branch, by their numbers.
        follows: told what the processes of a branch noted, and which calls of the border it was given: (dialogue, index).
        anew: each branch is restored, and none put back in place.
        supply: where branches come from, which further replays will need; None: of this replay alone.
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
    sees: Callable[[int], None] = lambda _root: None
    changes: Callable[[Branch], None] = lambda _branch: None
    measures: Callable[[Branch], Meter] | None = None
    hears: Callable[[Mapping[int, Outcome]], None] = lambda _outcomes: None
    follows: Callable[[Sequence[Event], Collection[tuple[int, int]]], None] = lambda _events, _calls: None
    anew: bool = False
    supply: BranchSupply | None = None


def answers_for(case: ReplayInput, options: ReplayOptions) -> AnswerFiles | None:
    """What a branch of the case is answered with; None where nothing is to be, or was recorded inside."""
    if case.window is None or options.calls is not Calls.RECORDED:
        return None
    policy = inside_policy(options.on_miss, has_border=case.stubs is not None)
    return AnswerFiles(case.window, case.manifest.taken_monotonic_ns, policy, options.clock)


async def replay(
    settings: Settings,
    store: Store,
    case: ReplayInput,
    options: ReplayOptions,
    progress: Callable[[int], None] = lambda _done: None,
    *,
    had: Collection[Run] = (),
    ended: Callable[[Run], None] = lambda _run: None,
) -> Replay:
    """Run the case as often as asked.

    A branch that cannot be restored gives a run with the verdict "failed to restore" and does not end the others.
    Call it from a process with one thread.

    Args:
        progress: called with the number of runs that are done.
        had: runs that were done before; they count, and only the others are made.
        ended: called with each run that was made as soon as it has ended; what it raises ends the replay.
    """
    slots = asyncio.Semaphore(max(1, options.jobs))
    answers = answers_for(case, options)
    done = len(had)
    if done:
        progress(done)

    missing = sorted(set(range(1, options.times + 1)) - {run.number for run in had})
    begun = 0

    def left() -> int:
        return len(missing) - begun

    async def one(number: int) -> Run:
        nonlocal done, begun
        async with slots:
            begun += 1
            run = await _run(branches, case, options, answers, number, left)
        ended(run)
        done += 1
        progress(done)
        return run

    branches = options.supply or BranchSupply(settings, store)
    try:
        made = await asyncio.gather(*(one(number) for number in missing))
    finally:
        if options.supply is None:
            await branches.close()
    return Replay(
        service=case.service,
        incident=case.incident,
        request=case.plan.subject,
        commit=case.commit,
        recorded=case.recorded,
        unrecorded=list(case.unrecorded),
        runs=sorted([*had, *made], key=lambda run: run.number),
        prepare_seconds=case.prepare_seconds,
    )


async def _run(
    supply: BranchSupply,
    case: ReplayInput,
    options: ReplayOptions,
    answers: AnswerFiles | None,
    number: int,
    left: Callable[[], int],
) -> Run:
    began = time.monotonic()
    if case.cannot_come_back is not None:
        return _without_a_branch(number, VerdictKind.NOT_REPRODUCED, case.cannot_come_back, [])
    stubs = case.stubs if options.calls is Calls.RECORDED else None
    stage = StubLifecycle(stubs, options.speed, options.ignore, options.on_miss)
    try:
        used = await supply.take(_need(case, options), stage, answers, is_last=left() < options.jobs)
    except ReliveError as error:
        return _not_restored(number, error)
    branch, network, servers = used.branch, used.network, used.servers
    restored = time.monotonic()
    drain = BranchDrain(branch.rings)
    draining = asyncio.create_task(drain.run())
    deaths: Deaths | None = None
    meter: Meter | None = None
    is_over = False
    try:
        watched = Watched(branch.facts.root, branch.facts.init, branch.groups.oom_kills)
        deaths = await Deaths.watch(watched, case.recorded)
        options.sees(branch.facts.root)
        stage.open(branch, case.manifest)
        options.changes(branch)
        if case.recorded.out_of_memory and not used.is_put_back:
            # Else a request that went over the limit by less than that would go well here.
            branch.have_memory_of_capsule()
        meter = options.measures(branch) if options.measures is not None else None
        opened = time.monotonic()
        lived = await _live(branch, case, options, deaths, log_from=used.log_from)
        outcome = lived.outcome
        if answers is not None:
            await _handler_ended(drain, case, lived.port)
        cut_off = network.cut_off() if network is not None and branch.is_alive else []
        draining.cancel()
        drain.close()
        outcome = _with_events(outcome, drain, case, lived.port) if answers is not None else outcome
        measured = meter.end() if meter is not None else None
        answered = time.monotonic()
        await stage.close()
        options.follows(drain.events, stage.given)
        outcome = _with_stubs(outcome, stage, case, is_alone=answers is None)
        closed = time.monotonic()
        outcome = _with_network(outcome, network, has_stubs=stage.plan is not None, cut_off=cut_off)
        outcome = outcome.model_copy(update={"unreached": [*outcome.unreached, *servers.unreached()]})
        lost = branch.cut_short
        sealed = time.monotonic()
        is_over = True
    finally:
        draining.cancel()
        if meter is not None:
            meter.close()
        if deaths is not None:
            await deaths.close()
        await stage.close()
        await supply.give_back(used, is_last=left() == 0, is_whole=is_over and lost is None)
    if lost is not None:  # whatever was seen of it is not the service's doing
        return _not_restored(number, lost)
    judged = time.monotonic()
    verdict = _with_notes(
        compare(
            case.recorded,
            outcome,
            ignore=options.ignore,
            earlier=lived.earlier,
            request=case.plan.subject,
            usual=case.usual,
        ),
        case.window if answers is not None else None,
        outcome,
        [
            *_not_sent(case.not_http),
            *_missing(case.gaps),
            *_sent_anew(lived.sent_anew),
            *conversed_words(lived.conversed),
            *drain.troubles,
            *servers.troubles(),
            *map(unwritable_words, branch.facts.unwritable_databases),
        ],
    )
    has_inside = answers is not None and bool(drain.events or (case.window and case.window.events))
    played = played_words(outcome, drain.events if has_inside else None)
    verdict = verdict.model_copy(update={"played": played})
    seal_seconds = 0.0 if used.is_put_back else branch.facts.seal_us / 1e6
    return Run(
        number=number,
        verdict=verdict,
        outcome=outcome,
        forwarded=lived.forwarded,
        restore_us=used.restore_us,
        is_put_back=used.is_put_back,
        anew_because=used.anew_because,
        seconds=time.monotonic() - began,
        steps=Steps(
            restore=restored - began - stage.seconds - seal_seconds,
            seal=seal_seconds + sealed - closed,
            stubs=stage.seconds + opened - restored + closed - answered,
            request=answered - opened,
            compare=time.monotonic() - judged,
        ),
        measured=measured,
    )


def _need(case: ReplayInput, options: ReplayOptions) -> BranchNeed:
    sent = max((step.after_commit_ns for step in case.plan.steps), default=case.plan.until_ns)
    return BranchNeed(
        case,
        options.clock,
        options.calls,
        options.on_miss,
        lazily=options.lazily,
        seconds=sent / 1e9 / options.speed if options.pace is Pace.RECORDED else 0.0,
        is_measured=options.measures is not None,
        anew=options.anew,
    )


def _with_stubs(outcome: Outcome, stage: StubLifecycle, case: ReplayInput, *, is_alone: bool) -> Outcome:
    """The outcome with what the stubs did; ``is_alone``: nobody inside the service gave answers too."""
    stubs = stage.report(case.failed_mono_ns if is_alone else None)
    if stubs is None:
        return outcome
    misses = [*outcome.misses, *stage.misses()]
    return outcome.model_copy(update={"stubs": stubs, "misses": misses[:_MOST_MISSES]})


def _with_network(
    outcome: Outcome, network: Network | None, *, has_stubs: bool, cut_off: list[str]
) -> Outcome:
    """The outcome with the seal's counters as they are at the end, and what was not reached: stubs tell that themselves."""
    if network is None:
        return outcome
    seal = network.seal()
    update: dict[str, object] = {
        "packets_left": seal.packets_left,
        "refused": seal.refused,
        "cut_off": cut_off,
    }
    if not has_stubs:
        update["unreached"] = network.unreached()
    return outcome.model_copy(update=update)


async def _handler_ended(drain: BranchDrain, case: ReplayInput, port: int | None) -> None:
    """Wait until the handler of the judged request has told of its end, which follows the answer, if it did when recorded."""
    recorded = case.recorded.events or ()
    if not any(event.kind == EventKind.HANDLING_ENDED for event in recorded):
        return
    deadline = time.monotonic() + _HANDLER_SETTLE
    while time.monotonic() < deadline:
        inside = _inside_branch(drain, case, port)
        if inside is not None and drain.has_handled(*inside):
            return
        await asyncio.sleep(0.01)


def _inside_branch(drain: BranchDrain, case: ReplayInput, port: int | None) -> tuple[int, int] | None:
    """(pid, number) of the judged request in the branch; ``port``: from which it was sent."""
    if case.inside is None or case.upgraded_before is not None:
        return case.inside  # which goes on in the branch
    return request_again(drain.events, case.inside, case.exchange, port)


def _with_events(outcome: Outcome, drain: BranchDrain, case: ReplayInput, port: int | None) -> Outcome:
    """The outcome with what happened inside the branch."""
    inside = _inside_branch(drain, case, port)
    events = sequence_of(drain.events, *inside) if inside is not None else None
    return outcome.model_copy(update={"events": events, "misses": misses_of(drain.events)})


def _with_notes(
    verdict: Verdict, window: EventWindow | None, outcome: Outcome, troubles: Collection[str]
) -> Verdict:
    """The verdict with what makes the comparison of events weaker, and what had no recorded answer."""
    misses = outcome.misses
    notes = [miss_words(miss) for miss in misses[:_NOTED_MISSES]]
    if len(misses) > _NOTED_MISSES:
        notes.append(f"{len(misses) - _NOTED_MISSES} more calls had no recorded answer")
    if outcome.stubs is not None:
        notes += stub_words(outcome.stubs)
    notes += map(elsewhere_words, outcome.elsewhere)
    if window is not None and window.lost:
        notes.append(
            f"{window.lost} events were lost when the service was recorded; calls among them have no answer"
        )
    if window is not None and window.left_out:
        notes.append(f"{window.left_out} events before the failure were too many to be laid out")
    if window is not None and window.damage:
        notes.append(f"what was recorded inside cannot be read to its end: {window.damage}")
    return verdict.model_copy(update={"inside": [*verdict.inside, *notes, *troubles]})


def _not_sent(connections: int) -> list[str]:
    if not connections:
        return []
    words = "1 connection of a client" if connections == 1 else f"{connections} connections of clients"
    return [f"{words} carried something other than HTTP/1 that was not recorded, and was not sent again"]


def _missing(gaps: int) -> list[str]:
    if not gaps:
        return []
    where = "at 1 place" if gaps == 1 else f"at {gaps} places"
    return [
        f"the recording is incomplete: something is missing {where} between the commit and the failure, and was not sent again"
    ]


def _sent_anew(numbers: Sequence[int]) -> list[str]:
    if not numbers:
        return []
    which = f"request {numbers[0]}" if len(numbers) == 1 else f"each of {len(numbers)} requests"
    return [
        f"the service had closed the idle connection of {which} before it came, which was sent on a new one"
    ]


def _not_restored(number: int, error: ReliveError) -> Run:
    notes = [error.remedy] if error.remedy else []
    return _without_a_branch(number, VerdictKind.FAILED_TO_RESTORE, str(error), notes)


def _without_a_branch(number: int, kind: VerdictKind, difference: str, notes: list[str]) -> Run:
    verdict = Verdict(kind=kind, difference=difference, notes=notes)
    return Run(number=number, verdict=verdict, outcome=None, forwarded=0, restore_us=None, seconds=0.0)


@dataclass(frozen=True, slots=True)
class _Lived:
    """What came of a branch.

    Attributes:
        earlier: the first difference before the outcome.
        forwarded: how many requests were sent beside the subject.
        sent_anew: as of ``Sender``.
        port: from which the failing request was sent; None: it was not.
        conversed: as of ``Sender``.
    """

    outcome: Outcome
    earlier: Earlier | None
    forwarded: int
    sent_anew: Sequence[int]
    port: int | None
    conversed: Conversed


async def _live(
    branch: Branch, case: ReplayInput, options: ReplayOptions, deaths: Deaths | None, *, log_from: int
) -> _Lived:
    """Send what was recorded, and see what becomes of it; ``log_from``: what the branch's log held when it was put back [bytes]."""
    plan = case.plan
    died = deaths.seen if deaths is not None else asyncio.Event()
    stop_watching = _watch_root(branch, died)
    log = branch.log("stderr")

    def note_log() -> None:
        nonlocal log_from
        log_from = log.stat().st_size

    limit = options.limit or case.limit
    # Process 1 of the branch has them open, too: a client's end is not closed by closing it here.
    peers = {port: os.dup(descriptor) for port, descriptor in branch.peers.items()}
    cursor = case.manifest.cursor.sequence if case.manifest.cursor is not None else 0
    address = service_address(case.manifest)
    linger = None
    if plan.subject is None and case.exchange is None:
        linger = options.limit or seconds_from_last_message(plan.conversations, case.failed_mono_ns)
    sender = Sender(
        *(branch.facts.init, address, peers),
        pace=options.pace,
        limit=limit,
        cursor=cursor,
        speed=options.speed,
        root=branch.facts.root,
        linger=linger,
    )
    began = time.monotonic()
    if (before := case.upgraded_before) is not None:
        note_log()
        sender.answers[before.number] = ReceivedAnswer(End.ANSWERED, before.status, before.answer_head)
    try:
        if not plan.sends_nothing:
            await sender.carry_out(plan, died, note_log)
        if plan.subject is None and not died.is_set():
            limit = min(limit, linger or limit)
            has_waited = sender.conversed.lingered
            left = SETTLE if has_waited else _seconds_to_die(case, sender, began, limit)
            await _wait_for_death(died, left)
        await asyncio.sleep(_LOG_SETTLE)
        lines = read_log(log, log_from)
        if plan.subject is None:
            status = await _status(branch, died) if not _is_of_a_worker(deaths) else None
            outcome = died_outcome(status, lines, time.monotonic() - began)
            outcome = _with_deaths(outcome, branch, deaths)
        else:
            outcome = replayed_answer(sender.answers.get(plan.subject, ReceivedAnswer()), lines)
            if case.hung_seconds is not None and (outcome.seconds or 0.0) >= case.hung_seconds:
                outcome = Outcome(end=End.NO_ANSWER, seconds=outcome.seconds, log=lines, stack=outcome.stack)
            if outcome.end is End.NO_ANSWER:
                outcome = outcome.model_copy(update={"places": await places_of(branch.facts.root)})
    finally:
        sender.close()
        stop_watching()
    options.hears(_others(case, sender))
    return _Lived(
        outcome.model_copy(update={"elsewhere": sender.elsewhere}),
        _first_earlier(case, sender, options.ignore),
        sum(n != plan.subject for n in sender.answers),
        sender.sent_anew,
        sender.ports.get(case.exchange.number) if case.exchange is not None else None,
        sender.conversed,
    )


def _with_deaths(outcome: Outcome, branch: Branch, deaths: Deaths | None) -> Outcome:
    """What was seen of the branch's processes beside the end of the first one."""
    if deaths is not None and deaths.faults:
        return with_fault(outcome, deaths.faults[0])
    if branch.groups.oom_kills():
        return with_memory_used_up(outcome)
    if deaths is not None and deaths.exit_status is not None:
        return with_worker_exit(outcome, deaths.exit_status)
    return outcome


def _is_of_a_worker(deaths: Deaths | None) -> bool:
    """The fatal signal that was seen ended a process that is not the service's first one, which may go on."""
    return deaths is not None and bool(deaths.faults) and not deaths.faults[0].is_root


def _watch_root(branch: Branch, died: asyncio.Event) -> Callable[[], None]:
    """Have ``died`` set when the service's first process ends, if nobody has set it before; what is returned ends that."""
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(branch.facts.root)
    except ProcessLookupError:
        died.set()
        return lambda: None

    def gone() -> None:
        loop.remove_reader(handle)
        died.set()

    def stop() -> None:
        loop.remove_reader(handle)
        os.close(handle)

    loop.add_reader(handle, gone)
    return stop


def _seconds_to_die(case: ReplayInput, sender: Sender, began: float, limit: float) -> float:
    """How long a service that was sent everything may still live, to be judged by its death."""
    fatal = case.exchange
    answer = sender.answers.get(fatal.number) if fatal is not None else None
    if fatal is not None and answer is not None:
        soon = seconds_left_to_die(fatal, answer.end, case.failed_mono_ns)
        if soon is not None:
            return min(limit, soon)
    left = case.plan.until_ns / 1e9 + limit - (time.monotonic() - began)
    return max(limit, left)


async def _wait_for_death(died: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(died.wait(), seconds)


async def _status(branch: Branch, died: asyncio.Event) -> int | None:
    if not died.is_set():
        return None
    for _ in range(100):  # relive-init writes it right after the root's end
        status = branch.wait_status
        if status is not None:
            return status
        await asyncio.sleep(0.01)
    return 9


def _others(case: ReplayInput, sender: Sender) -> dict[int, Outcome]:
    """How the requests beside the subject ended, those aside that cannot be read."""
    found = {}
    for number, answer in sender.answers.items():
        if number != case.plan.subject:
            with contextlib.suppress(RecordingError):
                found[number] = replayed_answer(answer, [])
    return found


def _first_earlier(case: ReplayInput, sender: Sender, ignore: Collection[str]) -> Earlier | None:
    """The first earlier request that ended otherwise than recorded, or else the first whose body differs."""
    found: Earlier | None = None
    for number, recorded in sorted(case.earlier.items()):
        answer = sender.answers.get(number)
        if answer is None or recorded.end is End.NO_ANSWER:
            continue
        with contextlib.suppress(RecordingError):
            replayed = replayed_answer(answer, [])
            difference = same_answer(recorded, replayed, ignore)
            if difference is None:
                continue
            earlier = Earlier(f"request {number}: {difference}", ended_otherwise(recorded, replayed))
            if earlier.ended_otherwise:
                return earlier
            found = found or earlier
    return found

"""One run: a branch is taken, the recorded requests are sent to it, and what came of it is compared with the recording."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from relive.errors import ReliveError
from relive.model.branch import unwritable_words
from relive.model.outcome import Outcome, Run, Steps, Verdict, VerdictKind
from relive.recording.events import Event, EventKind
from relive.replay.answers import AnswerFiles, Calls
from relive.replay.branch_life import Lived, live
from relive.replay.branch_supply import BranchNeed, BranchSupply
from relive.replay.conversations import conversed_words
from relive.replay.deaths import Deaths, Watched
from relive.replay.inprocess_events import request_again
from relive.replay.network import Network
from relive.replay.plan import Pace
from relive.replay.played import played_words
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import Meter, ReplayOptions
from relive.replay.ring_collector import BranchDrain
from relive.replay.run_notes import missing_words, not_sent_words, sent_anew_words, with_notes
from relive.replay.sequence import misses_of, sequence_of
from relive.replay.stubs.lifecycle import StubLifecycle
from relive.replay.verdict import compare

__all__ = ["run_once"]

_MOST_MISSES = 100
_HANDLER_SETTLE = 1.0  # [s] after the answer, for the end of its handler


async def run_once(
    supply: BranchSupply,
    case: ReplayInput,
    options: ReplayOptions,
    answers: AnswerFiles | None,
    number: int,
    left: Callable[[], int],
) -> Run:
    """Take a branch, replay the case in it, and judge; the branch is given back, whatever happens.

    Args:
        answers: what the recorder inside the branch gives back; None where nobody inside answers.
        left: how many runs have not begun yet.

    Returns:
        The run. Where no branch came to life, or its memory or disk was lost meanwhile, it says so; that is no verdict over the
        service.
    """
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
        lived = await live(branch, case, options, deaths, log_from=used.log_from)
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
    inside = drain.events if answers is not None else None
    troubles = [*servers.troubles(), *map(unwritable_words, branch.facts.unwritable_databases)]
    verdict = _judge(lived, outcome, case, options, inside, [*drain.troubles, *troubles])
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


def _judge(
    lived: Lived,
    outcome: Outcome,
    case: ReplayInput,
    options: ReplayOptions,
    inside: Sequence[Event] | None,
    troubles: list[str],
) -> Verdict:
    """The outcome compared with the recording, with what made the comparison weaker.

    Args:
        inside: what the branch's processes wrote into their rings; None where nobody inside answered.
    """
    verdict = compare(
        case.recorded,
        outcome,
        ignore=options.ignore,
        earlier=lived.earlier,
        request=case.plan.subject,
        usual=case.usual,
    )
    notes = [
        *not_sent_words(case.not_http),
        *missing_words(case.gaps),
        *sent_anew_words(lived.sent_anew),
        *conversed_words(lived.conversed),
        *troubles,
    ]
    window = case.window if inside is not None else None
    has_inside = bool(inside or (window and window.events))
    played = played_words(outcome, inside if has_inside else None)
    return with_notes(verdict, window, outcome, notes).model_copy(update={"played": played})


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


def _not_restored(number: int, error: ReliveError) -> Run:
    notes = [error.remedy] if error.remedy else []
    return _without_a_branch(number, VerdictKind.FAILED_TO_RESTORE, str(error), notes)


def _without_a_branch(number: int, kind: VerdictKind, difference: str, notes: list[str]) -> Run:
    verdict = Verdict(kind=kind, difference=difference, notes=notes)
    return Run(number=number, verdict=verdict, outcome=None, forwarded=0, restore_us=None, seconds=0.0)

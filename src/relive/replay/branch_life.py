"""What becomes of a branch: the recorded requests are sent to it, and their answers, or its death, are seen.

Nobody judges here: ``run`` adds what was seen inside and at the border, and compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from relive.errors import RecordingError
from relive.model.outcome import End, Outcome
from relive.replay.branch_log import BranchLog
from relive.replay.conversations import Conversed
from relive.replay.deaths import SETTLE, Deaths, places_of, seconds_from_last_message, seconds_left_to_die
from relive.replay.outcomes import (
    died_outcome,
    replayed_answer,
    with_fault,
    with_memory_used_up,
    with_worker_exit,
)
from relive.replay.received import ReceivedAnswer
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import ReplayOptions
from relive.replay.sender import Sender, service_address
from relive.replay.verdict import Earlier, ended_otherwise, same_answer
from relive.sandbox.branch import Branch

__all__ = ["Lived", "live"]

_LOG_SETTLE = 0.05  # [s] after the answer, for log lines that follow it


@dataclass(frozen=True, slots=True)
class Lived:
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


async def live(
    branch: Branch, case: ReplayInput, options: ReplayOptions, deaths: Deaths | None, *, log_from: int
) -> Lived:
    """Send what was recorded, and see what becomes of it; ``log_from``: what the branch's log held when it was put back [bytes]."""
    plan = case.plan
    died = deaths.seen if deaths is not None else asyncio.Event()
    stop_watching = _watch_root(branch, died)
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
    log = BranchLog(branch, case.watched_logs, log_from)
    try:
        if (before := case.upgraded_before) is not None:
            log.begin()
            sender.answers[before.number] = ReceivedAnswer(End.ANSWERED, before.status, before.answer_head)
        if not plan.sends_nothing:
            await sender.carry_out(plan, died, log.begin)
        if plan.subject is None and not died.is_set():
            limit = min(limit, linger or limit)
            has_waited = sender.conversed.lingered
            left = SETTLE if has_waited else _seconds_to_die(case, sender, began, limit)
            await _wait_for_death(died, left)
        await asyncio.sleep(_LOG_SETTLE)
        lines = log.lines()
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
        log.close()
        sender.close()
        stop_watching()
    options.hears(_others(case, sender))
    return Lived(
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

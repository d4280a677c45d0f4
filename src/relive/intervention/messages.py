"""Plans of a replay with messages left out that are not HTTP/1. Pure.

Where a message begins and ends is the protocol's affair, which nobody knows here. So a message is all that a client sent on a
connection until the service said something on it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from relive.errors import ChangeUnfit
from relive.recording.connections import Message
from relive.recording.exchanges import ExchangeEnd
from relive.replay.replay_input import ReplayInput

__all__ = ["messages_of", "removable_messages", "without_messages"]


def messages_of(case: ReplayInput) -> list[Message]:
    """Those that are sent, in their order."""
    found = case.plan.conversations
    return found.messages() if found is not None else []


def removable_messages(case: ReplayInput) -> list[int]:
    """Numbers of those that were answered, in their order.

    Of the others one may be what the service failed of. So may be the very last one, where that was answered in part.
    """
    found = messages_of(case)
    fails_in_one = case.exchange is None or case.exchange.ended is ExchangeEnd.UPGRADED
    last = found[-1].number if found and fails_in_one else None
    return [one.number for one in found if one.said and one.number != last]


def without_messages(case: ReplayInput, numbers: Collection[int]) -> ReplayInput:
    """The case with some of its messages not sent, and their answers not waited for; ChangeUnfit where one is not among them.

    What others answered while one of these was the only thing that was being served is given to nobody else.
    """
    if not numbers:
        return case
    messages = messages_of(case)
    known = {one.number for one in messages}
    for number in numbers:
        if number not in known:
            raise ChangeUnfit(
                f"--without-message {number} cannot be done",
                cause=f"message {number} is not among the {len(known)} that are sent from commit {case.commit[:10]} on",
                remedy="`relive what-if INCIDENT` lists them; an earlier commit (--commit) brings earlier ones",
            )
    conversations = case.plan.conversations
    assert conversations is not None
    plan = replace(case.plan, conversations=conversations.without(numbers))
    spans = [(one.number in numbers, *_span(one, case.failed_mono_ns)) for one in messages]
    spans += [
        (False, step.exchange.started_mono_ns, step.exchange.ended_mono_ns or case.failed_mono_ns)
        for step in case.plan.steps
    ]

    def is_theirs(mono_ns: int) -> bool:
        open_then = [is_gone for is_gone, begin, end in spans if begin <= mono_ns <= end]
        return bool(open_then) and all(open_then)

    window, stubs = case.window, case.stubs
    if window is not None:
        kept = [one for one in window.events if one.request or not is_theirs(one.mono_ns)]
        window = replace(window, events=kept)
    if stubs is not None:
        stubs = stubs.without(
            (call.dialogue, call.index) for call in stubs.calls() if is_theirs(call.asked_mono_ns)
        )
    return replace(case, plan=plan, window=window, stubs=stubs)


def _span(message: Message, failed_mono_ns: int) -> tuple[int, int]:
    """Monotonic times [ns] between which it was being served."""
    return message.turns[0].mono_ns, message.said[-1].mono_ns if message.said else failed_mono_ns

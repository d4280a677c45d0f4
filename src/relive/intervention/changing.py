"""A case with changes: what a replay is answered and sent otherwise, and whether it asked for what was changed. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from relive.intervention.answers import with_change
from relive.intervention.grammar import AnswerChange, Change, Reordered, Without, WithoutMessage
from relive.intervention.messages import without_messages
from relive.intervention.requests import with_requests
from relive.intervention.steps import Step, find_step, request_numbers, served_alone, steps_of
from relive.recording.events import Event
from relive.replay.replay_input import ReplayInput
from relive.replay.sequence import sequence_of

__all__ = ["Changed", "change_case", "unread"]

_Place = tuple[int, str, str]  # request (own number), kind, what was asked or read
BorderCall = tuple[int, int]  # dialogue, index


@dataclass(frozen=True, slots=True)
class Changed:
    """A case that was changed.

    Attributes:
        steps: those that are answered otherwise.
        inside: how often something like a changed event must have been asked before it was given, with its name.
        border: changed calls of the border, with their names.
    """

    case: ReplayInput
    steps: tuple[Step, ...] = ()
    inside: tuple[tuple[_Place, int, str], ...] = ()
    border: dict[BorderCall, str] = field(default_factory=dict)


def change_case(case: ReplayInput, changes: Sequence[Change], steps: Sequence[Step] | None = None) -> Changed:
    """Make the changes; several of one step are made one after the other.

    Args:
        steps: of the case, where they are known already.

    Raises:
        ChangeUnfit: one cannot be made.
    """
    answers = [one for one in changes if isinstance(one, AnswerChange)]
    known = list(steps) if steps is not None else steps_of(case) if answers else []
    now: dict[str, Step] = {}
    for change in answers:
        step = now.get(str(change.call)) or find_step(known, change.call, change.written)
        made = with_change(step, change)
        now[str(change.call)] = (
            replace(step, event=made) if isinstance(made, Event) else replace(step, call=made)
        )
    requests = [one for one in changes if isinstance(one, Without | Reordered)]
    changed = with_requests(_answered(case, list(now.values())), requests)
    changed = without_messages(changed, [one.message for one in changes if isinstance(one, WithoutMessage)])
    changed = _unanswered(changed, case, {one.request for one in requests if isinstance(one, Without)})
    return Changed(
        changed,
        tuple(now.values()),
        tuple(_expected(case, step) for step in now.values() if step.event is not None),
        {
            (step.call.dialogue, step.call.index): str(step.name)
            for step in now.values()
            if step.call is not None
        },
    )


def unread(changed: Changed, events: Sequence[Event], calls: Collection[BorderCall]) -> list[str]:
    """Names of the changed steps that a branch did not ask for.

    Args:
        events: of the branch's processes; calls: of the border, which it was given.
    """
    came: Counter[_Place] = Counter(
        _place(event) for event in events if "value" in event.fields or event.fields.get("played")
    )
    inside = [name for place, number, name in changed.inside if came[place] < number]
    return inside + [name for place, name in changed.border.items() if place not in calls]


def _answered(case: ReplayInput, steps: Sequence[Step]) -> ReplayInput:
    events = {step.event.seq: step.event for step in steps if step.event is not None}
    calls = {(step.call.dialogue, step.call.index): step.call for step in steps if step.call is not None}
    if events and case.window is not None:
        window = replace(case.window, events=[events.get(one.seq, one) for one in case.window.events])
        recorded = case.recorded
        if case.inside is not None:  # what was changed is no difference to the recording
            recorded = recorded.model_copy(update={"events": sequence_of(window.events, *case.inside)})
        case = replace(case, window=window, recorded=recorded)
    if calls and case.stubs is not None:
        case = replace(case, stubs=case.stubs.answering(calls))
    return case


def _unanswered(changed: ReplayInput, case: ReplayInput, without: Collection[int]) -> ReplayInput:
    """The case without what requests that are left out were answered: to others that may not have been the answer.

    At the border only of what was asked while no other request was served.
    """
    if not without:
        return changed
    window, stubs = changed.window, changed.stubs
    numbers = request_numbers(case)
    if window is not None:
        gone = {place for place, number in numbers.items() if number in without}
        kept = [one for one in window.events if (int(one.fields.get("pid", 0)), one.request) not in gone]
        window = replace(window, events=kept)
    if stubs is not None:
        served = [step.exchange for step in case.plan.steps]
        stubs = stubs.without(
            (call.dialogue, call.index)
            for call in stubs.calls()
            if (alone := served_alone(served, call.asked_mono_ns)) is not None and alone in without
        )
    return replace(changed, window=window, stubs=stubs)


def _expected(case: ReplayInput, step: Step) -> tuple[_Place, int, str]:
    """How many such events there are up to this one: they are given in their order."""
    assert step.event is not None and case.window is not None
    wanted = _place(step.event)
    taken_ns = case.manifest.taken_monotonic_ns
    number = 0
    for event in case.window.events:
        if event.mono_ns > taken_ns and _place(event) == wanted:
            number += 1
        if event.seq == step.event.seq:
            break
    return wanted, number, str(step.name)


def _place(event: Event) -> _Place:
    asked = event.fields.get("asked", event.fields.get("source"))
    return event.request, event.kind.value, json.dumps(asked, sort_keys=True, default=str)

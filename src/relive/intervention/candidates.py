"""What may have caused a failure: what it was answered and read otherwise than the last good request to its route. Pure.

Steps of the same shape are compared in their order. Where two answers have the same form each leaf in which they differ is a
change of its own (a cell of a row, a field of a body), else the whole answer is.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from relive.errors import ChangeUnfit
from relive.incidents.report.last_good import is_slower
from relive.incidents.report.shapes import shape_of
from relive.intervention.answers import answer_tree, columns_of, with_change
from relive.intervention.grammar import AnswerChange, Delay, HttpAnswer, Instead
from relive.intervention.steps import Step
from relive.intervention.telling import path_text
from relive.intervention.trees import differing_leaves
from relive.protocols.call import CallEnd
from relive.recording.events import EventKind

__all__ = ["candidates"]

_HTTP = (EventKind.HTTP_CALL, EventKind.S3_CALL)
_MOST = 200  # of a group
_LONGEST = 64 << 10  # [characters] of a value


def candidates(failing: Sequence[Step], good: Sequence[Step]) -> dict[str, list[AnswerChange]]:
    """Changes that make the failing request's steps like those of the good one: of "answers", "clock" and "random"."""
    found: dict[str, list[AnswerChange]] = {"answers": [], "clock": [], "random": []}
    for one, other in _pairs(failing, good):
        group = one.name.label if one.is_reading else "answers"
        for change in _between(one, other):
            if len(found[group]) < _MOST and len(change.written) < _LONGEST and _can_be_made(one, change):
                found[group].append(change)
    return found


def _pairs(failing: Sequence[Step], good: Sequence[Step]) -> Iterator[tuple[Step, Step]]:
    """By shape; what is left of calls by their method or command, since a name in a URL or key is no number."""
    left, mine = list(good), list(failing)
    for key in (_shape, _verb):
        theirs: dict[object, list[Step]] = defaultdict(list)
        for step in reversed(left):
            theirs[key(step)].append(step)
        for step in list(mine):
            alike = theirs[key(step)]
            if alike:
                other = alike.pop()
                left.remove(other)
                mine.remove(step)
                yield step, other


def _shape(step: Step) -> object:
    return shape_of(step.kind, step.what)


def _verb(step: Step) -> object:
    statement = step.what if step.kind is EventKind.QUERY or step.is_reading else step.what.partition(" ")[0]
    return step.kind, statement


def _can_be_made(step: Step, change: AnswerChange) -> bool:
    try:
        with_change(step, change)
    except ChangeUnfit:
        return False
    return True


def _between(one: Step, other: Step) -> Iterator[AnswerChange]:
    if one.call is not None and is_slower(one.took_ns, other.took_ns):
        ns = other.took_ns or 0
        yield AnswerChange(one.name, (), Delay(ns), f"{one.name}=delay:{ns // 1000}us")
    try:
        then = answer_tree(other)
    except ChangeUnfit:
        return
    if not _is_answered(other):
        return
    if one.kind in _HTTP:
        yield from _http(one, other, then)
        return
    try:
        now = answer_tree(one)
    except ChangeUnfit:
        now = None
    if not _is_answered(one):
        yield _whole(one, then)
    elif now != then:
        leaves = differing_leaves(now, then)
        yield from _leaves(one, leaves) if leaves is not None else (_whole(one, then),)


def _http(one: Step, other: Step, then: object) -> Iterator[AnswerChange]:
    status, before = _status(other), _status(one)
    now = answer_tree(one) if before is not None else None
    if status != before:
        body = then if isinstance(then, str) else json.dumps(then)
        yield AnswerChange(one.name, (), HttpAnswer(status, body), f"{one.name}={status} {body}")
    elif now != then:
        leaves = differing_leaves(now, then) if not isinstance(now, str) else None
        if leaves is not None and all(path for path, _ in leaves):
            yield from _leaves(one, leaves)
        else:
            body = then if isinstance(then, str) else json.dumps(then)
            yield AnswerChange(one.name, (), HttpAnswer(status, body), f"{one.name}={status} {body}")


def _leaves(
    step: Step, leaves: Sequence[tuple[tuple[str | int | None, ...], object]]
) -> Iterator[AnswerChange]:
    names = columns_of(step)
    for place, value in leaves:
        path = place
        if (
            step.kind is EventKind.QUERY
            and len(place) > 1
            and isinstance(place[1], int)
            and place[1] < len(names) == len(set(names))
        ):
            path = (place[0], names[place[1]], *place[2:])
        yield AnswerChange(
            step.name, path, Instead(value), f"{step.name}{path_text(path)}={json.dumps(value)}"
        )


def _whole(step: Step, value: object) -> AnswerChange:
    return AnswerChange(step.name, (), Instead(value), f"{step.name}={json.dumps(value)}")


def _status(step: Step) -> int | None:
    answer = (
        step.call.answer if step.call is not None else step.event.fields.get("answer") if step.event else None
    )
    status = answer.get("status") if isinstance(answer, dict) else None
    return status if isinstance(status, int) and _is_answered(step) else None


def _is_answered(step: Step) -> bool:
    """By a whole answer, and no error."""
    if step.call is not None:
        answer = step.call.answer
        return step.call.end is CallEnd.ANSWERED and not (isinstance(answer, dict) and "error" in answer)
    return step.event is not None and "error" not in step.event.fields

"""Changes and what can be changed, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relive.errors import ChangeUnfit
from relive.incidents.report.shown import shorten, shown
from relive.intervention.answers import answer_tree, columns_of
from relive.intervention.grammar import (
    AnswerChange,
    Change,
    Delay,
    Failure,
    HttpAnswer,
    Instead,
    Reordered,
    Shift,
    Without,
    WithoutMessage,
    option_of,
)
from relive.intervention.messages import messages_of
from relive.intervention.steps import Step
from relive.model.intervention import Changeable, ChangeDescription
from relive.model.quantities import duration
from relive.protocols.matching import PathStep, path_step
from relive.recording.connections import Message, Said, Turn
from relive.recording.exchanges import Exchange
from relive.replay.replay_input import ReplayInput

__all__ = ["changeables", "describe_changes", "path_text", "request_words"]

_LONG = 160  # [characters] of a value that is told
_ORDERS = {
    "swap": "each in the place of the other",
    "apart": "the second after the end of the first",
    "together": "both at once",
}


def changeables(case: ReplayInput, steps: Sequence[Step]) -> list[Changeable]:
    """The requests that are sent, each with what it was answered and read; those of the failing one first."""
    failing = case.exchange.number if case.exchange is not None else 0
    found = []
    for one in sorted(
        case.plan.steps, key=lambda one: (one.exchange.number != failing, one.exchange.started_seq)
    ):
        number = one.exchange.number
        result = str(one.exchange.status) if one.exchange.status is not None else "no answer"
        found.append(
            Changeable(
                name=str(number), request=number, kind="request", what=_line(one.exchange), result=result
            )
        )
        found += [_changeable(step) for step in steps if step.request == number]
    sent = {one.exchange.number for one in case.plan.steps}
    found += [_message(case, one) for one in reversed(messages_of(case))]
    return found + [_changeable(step) for step in steps if step.request not in sent]


def _message(case: ReplayInput, message: Message) -> Changeable:
    return Changeable(
        name=str(message.number),
        request=0,
        kind="message",
        what=_text(case, message.turns),
        result=_text(case, message.said) or "no answer",
    )


def _text(case: ReplayInput, pieces: Sequence[Turn | Said]) -> str:
    """What was sent or said, as far as it is shown; what is no text with escapes."""
    assert case.plan.conversations is not None
    found = b""
    for one in pieces:
        found += case.plan.conversations.bytes_of(one)
        if len(found) > _LONG:
            break
    text = found[: _LONG + 1].decode("utf-8", "backslashreplace")
    return shorten("".join(one if one.isprintable() else repr(one)[1:-1] for one in text), _LONG)


def _changeable(step: Step) -> Changeable:
    try:
        answer = shorten(shown(answer_tree(step)), _LONG)
    except ChangeUnfit:
        answer = ""
    return Changeable(
        name=str(step.name),
        request=step.request,
        kind=step.name.label,
        what=step.what,
        result=answer or step.result,
    )


def request_words(case: ReplayInput) -> str:
    """The failing request: ``request 60 (GET /price/tea) 500``; of a service that died without one its end."""
    if case.exchange is None:
        return "the end of the service"
    status = case.exchange.status
    return (
        f"request {case.exchange.number} ({_line(case.exchange)}){f' {status}' if status is not None else ''}"
    )


def _line(exchange: Exchange) -> str:
    return f"{exchange.method} {exchange.target}"


def describe_changes(
    case: ReplayInput, changes: Sequence[Change], steps: Sequence[Step]
) -> list[ChangeDescription]:
    """Each change with what it was before."""
    requests = {one.exchange.number: one.exchange for one in case.plan.steps}
    messages = {one.number: one for one in messages_of(case)}
    named = {str(one.name): one for one in steps}
    described = []
    for change in changes:
        if isinstance(change, AnswerChange):
            described.append(_answer(change, named[str(change.call)]))
        elif isinstance(change, WithoutMessage):
            described.append(_left_out(case, messages[change.message]))
        else:
            described.append(_request(change, requests))
    return described


def _request(change: Without | Reordered, requests: dict[int, Exchange]) -> ChangeDescription:
    numbers = [change.request] if isinstance(change, Without) else [change.first, change.second]
    words = [
        f"request {one} ({_line(requests[one])})" if one in requests else f"request {one}" for one in numbers
    ]
    if isinstance(change, Without):
        status = requests[change.request].status if change.request in requests else None
        recorded = f"sent, answered {status}" if status is not None else "sent"
        return ChangeDescription(
            option=option_of(change), about=words[0], recorded=recorded, instead="left out"
        )
    return ChangeDescription(
        option=option_of(change),
        about=" and ".join(words),
        recorded="as they came",
        instead=_ORDERS[change.how],
    )


def _left_out(case: ReplayInput, message: Message) -> ChangeDescription:
    answer = _text(case, message.said)
    return ChangeDescription(
        option=option_of(WithoutMessage(message.number)),
        about=f"message {message.number} ({_text(case, message.turns)})",
        recorded=f"sent, answered {answer}" if answer else "sent",
        instead="left out",
    )


def _answer(change: AnswerChange, step: Step) -> ChangeDescription:
    about = f"{step.name}{path_text(change.path)}: {step.what}"
    return ChangeDescription(
        option=option_of(change), about=about, recorded=_recorded(change, step), instead=_instead(change)
    )


def _recorded(change: AnswerChange, step: Step) -> str:
    if isinstance(change.to, Delay):
        took = step.took_ns
        return f"answered after {duration(took / 1000)}" if took is not None else "answered"
    if isinstance(change.to, HttpAnswer) and change.to.body is None:
        return step.result
    try:
        value: Any = answer_tree(step)
    except ChangeUnfit:
        return step.result
    for one in change.path:
        names = columns_of(step)
        at: Any = (
            names.index(one) if isinstance(value, list) and isinstance(one, str) and one in names else one
        )
        try:
            value = value[at]
        except (LookupError, TypeError):
            return step.result
    return shorten(shown(value), _LONG)


def _instead(change: AnswerChange) -> str:
    to = change.to
    if isinstance(to, Delay):
        return f"answered after {duration(to.ns / 1000)}"
    if isinstance(to, Failure):
        return f"fails: {to.how}{f': {to.text}' if to.text else ''}"
    if isinstance(to, HttpAnswer):
        return shorten(" ".join(str(one) for one in (to.status, to.body) if one is not None), _LONG)
    if isinstance(to, Shift):
        return f"{'+' if to.ns >= 0 else '-'}{duration(abs(to.ns) / 1000)}"
    assert isinstance(to, Instead)
    return shorten(shown(to.value), _LONG)


def path_text(path: Sequence[PathStep]) -> str:
    """``$[0].price``; empty for no path."""
    return (
        "$" + "".join(f"[{one}]" if isinstance(one, int) else path_step(str(one)) for one in path)
        if path
        else ""
    )

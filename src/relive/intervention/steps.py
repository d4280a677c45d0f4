"""What of a recording can be changed: the answers that requests got since the commit, and what they read, each with a name.

The recorder inside a process answers before the border does, so a call that both recorded is the one from inside. Which request
something belongs to is what the recorder inside says; where it does not know, as at the border, it is the request that was being
served then: the failing one, else the one that had begun last. That is for the name only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relive.errors import ChangeUnfit
from relive.incidents.report.egress import InprocessCalls
from relive.incidents.report.words import phrase
from relive.intervention.grammar import KINDS, CallName
from relive.protocols.call import Call
from relive.protocols.event_view import event_fields
from relive.recording.events import Event, EventKind, is_within_a_call
from relive.recording.exchanges import Exchange
from relive.replay.inprocess_events import request_inside
from relive.replay.replay_input import ReplayInput

__all__ = ["Step", "find_step", "request_numbers", "served_alone", "steps_of", "steps_of_request"]

_LABELS = {kind: label for label, kind in KINDS.items()}
_LOCAL = "sqlite"  # its answers lie in the commit: files are there, and asked really
_HOUSEKEEPING = frozenset({"CONNECT", "CANCEL"})


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a request was answered, or read.

    Attributes:
        event: from inside, its fields as JSON has them; call: from the border. One of them is None.
        what, result: in words.
    """

    name: CallName
    kind: EventKind
    request: int
    what: str
    result: str
    event: Event | None = None
    call: Call | None = None

    @property
    def is_reading(self) -> bool:
        """Of the clock or of chance; else a call."""
        return self.kind in (EventKind.CLOCK, EventKind.RANDOM)

    @property
    def asked(self) -> Mapping[str, Any]:
        """What a call asked; of a reading its source."""
        if self.call is not None:
            return self.call.asked
        assert self.event is not None
        asked = self.event.fields.get("asked")
        return asked if isinstance(asked, Mapping) else {"source": self.event.fields.get("source")}

    @property
    def took_ns(self) -> int | None:
        """From the question to the end of the answer; None where that is not known."""
        if self.call is not None:
            ended = self.call.ended_mono_ns
            return None if ended is None else max(0, ended - self.call.asked_mono_ns)
        assert self.event is not None
        took = self.event.fields.get("ns")
        return took if isinstance(took, int) else None


def steps_of(case: ReplayInput) -> list[Step]:
    """All that a replay of the case can be answered otherwise, in the order of time."""
    served = _served(case)
    subject = case.exchange.number if case.exchange is not None else 0
    events = case.window.events if case.window is not None else []
    numbers = request_numbers(case)
    calls = case.stubs.calls() if case.stubs is not None else []
    span = case.manifest.taken_monotonic_ns, _end_of(case)
    found = [*_inside(events, numbers, served, subject, span), *_border(calls, events, served, subject, span)]
    return _named(sorted(found, key=lambda one: one[0]), subject)


def request_numbers(case: ReplayInput) -> dict[tuple[int, int], int]:
    """(pid, number in that process) to the proxy's number of each request that the recorder inside knows."""
    events = case.window.events if case.window is not None else []
    begun = [event for event in events if event.kind is EventKind.HANDLING_STARTED]
    return {place: one.number for one in _served(case) if (place := request_inside(begun, one)) is not None}


def served_alone(served: Iterable[Exchange], mono_ns: int) -> int | None:
    """The number of the only request that was being served at a time; None where there was none, or several."""
    numbers = [one.number for one in _open_at(served, mono_ns)]
    return numbers[0] if len(numbers) == 1 else None


def _served(case: ReplayInput) -> list[Exchange]:
    """What is sent, and the request that failed, which is not where it is in the commit."""
    served = [step.exchange for step in case.plan.steps]
    if case.exchange is not None and case.exchange.number not in {one.number for one in served}:
        served.append(case.exchange)
    return served


def _open_at(served: Iterable[Exchange], mono_ns: int) -> list[Exchange]:
    return [
        one
        for one in served
        if one.started_mono_ns <= mono_ns and (one.ended_mono_ns is None or mono_ns <= one.ended_mono_ns)
    ]


def _end_of(case: ReplayInput) -> int:
    """When the failing request had ended, or the failure was seen."""
    ended = case.exchange.ended_mono_ns if case.exchange is not None else None
    return ended if ended is not None else case.failed_mono_ns


def steps_of_request(exchange: Exchange, inside: Sequence[Event], calls: Sequence[Call]) -> list[Step]:
    """The same of one request that was served well. ``inside``: its events, and those of its process meanwhile."""
    begun = [event for event in inside if event.kind is EventKind.HANDLING_STARTED]
    place = request_inside(begun, exchange)
    numbers = {place: exchange.number} if place is not None else {}
    span = exchange.started_mono_ns, exchange.ended_mono_ns or exchange.started_mono_ns
    found = [
        *_inside(inside, numbers, [exchange], exchange.number, span),
        *_border(calls, inside, [exchange], exchange.number, span),
    ]
    return [
        one
        for one in _named(sorted(found, key=lambda one: one[0]), exchange.number)
        if one.request == exchange.number
    ]


def find_step(steps: Iterable[Step], name: CallName, written: str) -> Step:
    """The step that a name means; raises ChangeUnfit where there is none."""
    known = [one for one in steps if one.name == name]
    if known:
        return known[0]
    alike = [
        str(one.name) for one in steps if one.name.label == name.label and one.name.request == name.request
    ]
    of = (
        "the failing request"
        if name.request is None
        else f"request {name.request}"
        if name.request
        else "no request"
    )
    count = f"{len(alike)} of that kind" if alike else f"no {name.label} that can be changed"
    raise ChangeUnfit(
        f"there is no {name} in the recording",
        cause=f"{of} has {count} since the commit"
        + (", SQLite and files apart, whose answers lie in the commit" if name.label == "query" else ""),
        remedy=f"`relive what-if INCIDENT` without a change lists what there is; {written[:80]!r} was asked for",
    )


_Found = tuple[tuple[int, int], int, Event | None, Call | None]  # place in time, number of the request


def _inside(
    events: Iterable[Event],
    numbers: Mapping[tuple[int, int], int],
    served: Sequence[Exchange],
    subject: int,
    span: tuple[int, int],
) -> list[_Found]:
    """``span``: monotonic times of the commit, and of the end: what came later belongs to a request before it, or is left away."""
    found: list[_Found] = []
    for event in events:
        if event.kind not in _LABELS or event.kind is EventKind.DIALOGUE_UP or event.mono_ns <= span[0]:
            continue
        if is_within_a_call(event) or not _is_changeable(event):
            continue
        own = int(event.fields.get("pid", 0)), event.request
        number = numbers.get(own) if event.request else None
        if number is None:
            if event.mono_ns > span[1]:
                continue
            number = _served_at(served, event.mono_ns, subject)
        found.append(((event.mono_ns, event.seq), number, event, None))
    return found


def _is_changeable(event: Event) -> bool:
    asked = event.fields.get("asked")
    if isinstance(asked, Mapping):
        return asked.get("system") != _LOCAL and asked.get("statement") not in _HOUSEKEEPING
    return "value" in event.fields and isinstance(event.fields.get("source"), str)


def _border(
    calls: Iterable[Call],
    events: Iterable[Event],
    served: Sequence[Exchange],
    subject: int,
    span: tuple[int, int],
) -> list[_Found]:
    inprocess = InprocessCalls(events)
    return [
        ((call.asked_mono_ns, call.index), _served_at(served, call.asked_mono_ns, subject), None, call)
        for call in calls
        if call.kind in _LABELS
        and span[0] < call.asked_mono_ns <= span[1]
        and "message" not in call.asked
        and call.asked.get("statement") not in _HOUSEKEEPING
        and not call.extra.get("housekeeping")
        and not inprocess.covers(call)
    ]


def _served_at(served: Sequence[Exchange], mono_ns: int, subject: int) -> int:
    """The number of the request that was being served; 0 where none was."""
    open_then = _open_at(served, mono_ns)
    if any(one.number == subject for one in open_then):
        return subject
    return max(open_then, key=lambda one: one.started_mono_ns).number if open_then else 0


def _named(found: Sequence[_Found], subject: int) -> list[Step]:
    counts: Counter[tuple[int, str]] = Counter()
    steps = []
    for _, request, event, call in found:
        kind = event.kind if event is not None else call.kind if call is not None else EventKind.NOTE
        label = _LABELS[kind]
        counts[request, label] += 1
        name = CallName(None if request == subject else request, label, counts[request, label])
        fields = (
            dict(event.fields) if event is not None else event_fields(call)[0] if call is not None else {}
        )
        words = phrase(kind, _with_rows(fields))
        steps.append(Step(name, kind, request, words.what, words.result, event, call))
    return steps


def _with_rows(fields: dict[str, Any]) -> dict[str, Any]:
    answer = fields.get("answer")
    rows = answer.get("rows") if isinstance(answer, dict) else None
    return {**fields, "rows_fetched": len(rows)} if isinstance(rows, list) else fields

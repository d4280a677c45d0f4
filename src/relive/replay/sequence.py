"""What happened inside for one request, as a sequence that can be compared with another life's.

Rules:

1. Lanes (threads, tasks) are compared each for itself: how they interleave is nobody's promise.
2. Of an event its kind is compared, what was asked, what came back, or what was read; not its time, nor how long it took,
   nor numbers of processes and threads, nor numbers in texts of log records.
3. What the handler had done when it ended must be there on the other side, before its end or after; what came after its
   end may be missing, since a branch is stopped when its answer is there.
4. What was part of another call is not compared: where that is answered, it does not happen.
5. Of rows that are cut their number is compared, and of a long value its beginning, length and CRC-32; but not where a
   placeholder stands in it in the replay: then it had another length when it was recorded.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relive.model.outcome import InsideEvent, Miss
from relive.recording.events import Event, EventKind, is_within_a_call
from relive.replay.difference import DifferingPart, first_differing_part, is_equal, short

__all__ = [
    "COMPARED_KINDS",
    "MOST_EVENTS",
    "DifferingEvent",
    "asked_words",
    "compared_event",
    "differing_events",
    "event_words",
    "first_differing_event",
    "first_new_call",
    "is_call",
    "miss_words",
    "misses_of",
    "sequence_of",
]

MOST_EVENTS = 2000
_MOST_MISSES = 100
_LONG = 8192  # [bytes] of JSON of one part of an event
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[0-9]+")
# Of a question the whole subject: whoever has one of these ignored takes any answer for this.
_SUBJECTS = frozenset(
    {"$.statement", "$.command", "$.command[0]", "$.commands", "method", "host", "path", "$.asked"}
)
_HAS_PLACEHOLDERS = "has_placeholders"
_CALL_PARTS = ("asked", "answer", "error", "bytes", "blake2b")
# What is compared of an event; kinds that are not here are not compared.
_PARTS: Mapping[str, tuple[str, ...]] = {
    EventKind.HANDLING_STARTED: ("method", "target"),
    EventKind.HANDLING_ENDED: ("status", "error"),
    EventKind.QUERY: _CALL_PARTS,
    EventKind.ROWS: ("rows", "rows_cut", _HAS_PLACEHOLDERS),
    EventKind.HTTP_CALL: _CALL_PARTS,
    EventKind.REDIS_COMMAND: _CALL_PARTS,
    EventKind.S3_CALL: _CALL_PARTS,
    EventKind.FILE_READ: _CALL_PARTS,
    EventKind.SUBPROCESS: _CALL_PARTS,
    EventKind.CLOCK: ("source", "value"),
    EventKind.RANDOM: ("source", "value"),
    EventKind.ENVIRONMENT_READ: ("name", "value"),
    EventKind.LOG_RECORD: ("logger", "level", "text"),
    EventKind.FAILURE: ("type", "fingerprint"),
    EventKind.MISS: ("asked",),
}
COMPARED_KINDS = frozenset(EventKind(kind).value for kind in _PARTS)
_CALLS = frozenset(
    {
        *(EventKind.QUERY, EventKind.HTTP_CALL, EventKind.REDIS_COMMAND, EventKind.S3_CALL),
        *(EventKind.FILE_READ, EventKind.SUBPROCESS, EventKind.MISS),
    }
)


def sequence_of(events: Sequence[Event], pid: int, request: int) -> list[InsideEvent]:
    """The first 2000 events of one request that are compared, in the order of time."""
    found = []
    for event in events:
        if event.request != request or event.fields.get("pid") != pid or event.kind not in _PARTS:
            continue
        if is_within_a_call(event):
            continue
        if event.kind is EventKind.MISS and event.fields.get("policy") == "pass":
            continue  # the call itself follows
        found.append(compared_event(event))
        if len(found) == MOST_EVENTS:
            break
    return found


def compared_event(event: Event) -> InsideEvent:
    """As it is compared; ``about`` is empty for a kind that is not."""
    about = {
        name: _bounded(event.fields[name]) for name in _PARTS.get(event.kind, ()) if name in event.fields
    }
    if event.data and "asked" in event.fields and "file" not in event.fields:
        about["body"] = _digest(event.data)
    kind = event.kind.value
    if event.kind is EventKind.MISS:
        about["missed"] = str(event.fields.get("kind"))
    return InsideEvent(kind=kind, lane=int(event.fields.get("lane", 0)), about=about)


def _bounded(value: Any) -> Any:
    """The value itself, or the length and digest of a long one."""
    text = json.dumps(value)
    return value if len(text) <= _LONG else {"bytes": len(text), "blake2b": _digest(text.encode())}


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def misses_of(events: Sequence[Event]) -> list[Miss]:
    """The first 100 misses."""
    found = [event.fields for event in events if event.kind is EventKind.MISS][:_MOST_MISSES]
    return [
        Miss(
            kind=str(fields.get("kind")),
            asked=_dict(fields.get("asked")) or {},
            nearest=_dict(fields.get("nearest")),
            differs=[str(path) for path in fields.get("differs", ())][:20],
            policy=str(fields.get("policy")),
        )
        for fields in found
    ]


def _dict(value: Any) -> dict[str, Any] | None:
    bounded = _bounded(value) if isinstance(value, dict) else None
    return bounded if isinstance(bounded, dict) else None


def miss_words(miss: Miss) -> str:
    """A miss in one line."""
    near = ""
    if miss.nearest is not None:
        differs = f"differs in {', '.join(miss.differs[:3])}" if miss.differs else "was made elsewhere"
        near = f"; the nearest one, {asked_words(miss.nearest)}, {differs}"
    if miss.to is None:
        return f"no recorded answer to {miss.kind} {asked_words(miss.asked)} ({miss.policy}){near}"
    if miss.nearest is None and "statement" in miss.asked:
        near = "; no call with this statement is recorded"
    if miss.nearest is not None and miss.differs and _SUBJECTS.isdisjoint(miss.differs):
        options = " ".join(f"--ignore {shlex.quote(name)}" for name in miss.differs)
        near += f"; to take that: {options}"
    return f"no recorded answer to {miss.kind} {asked_words(miss.asked)} at {miss.to}{near}"


def is_call(event: InsideEvent | None) -> bool:
    """The service asked somebody for something."""
    return event is not None and event.kind in _CALLS


def first_new_call(
    recorded: Iterable[InsideEvent] | None, replayed: Iterable[InsideEvent] | None
) -> InsideEvent | None:
    """The first call of a replay that asked for what none in the recording had asked; None too where either is not known."""
    if recorded is None or replayed is None:
        return None
    known = {_asked_key(one) for one in recorded if is_call(one)}
    return next((one for one in replayed if is_call(one) and _asked_key(one) not in known), None)


def _asked_key(call: InsideEvent) -> tuple[str, str]:
    """Equal for calls of one kind that ask for the same."""
    return call.kind, json.dumps(call.about.get("asked"), sort_keys=True)


@dataclass(frozen=True, slots=True)
class DifferingEvent:
    """Where two sequences differ.

    Attributes:
        place: from 1, in the first sequence; behind its end where only the other has the event.
        one, other: the events; None: there is none.
        part: the first part that differs, where both are of one kind; else None.
    """

    place: int
    one: InsideEvent | None
    other: InsideEvent | None
    part: DifferingPart | None = None


def first_differing_event(
    recorded: list[InsideEvent], replayed: list[InsideEvent], ignore: Collection[str] = ()
) -> tuple[int, InsideEvent | None, InsideEvent | None, str] | None:
    """The first event that differed: its place from 1, the two events, and in words; None when none did.

    Args:
        ignore: ``event:KIND`` (events of that kind are not compared) or ``event:KIND:PATH``, such as
            ``event:query:$.asked.parameters[0]``.
    """
    found = next(differing_events(recorded, replayed, ignore), None)
    return None if found is None else (found.place, found.one, found.other, _words(found))


def differing_events(
    one: list[InsideEvent], other: list[InsideEvent], ignore: Collection[str] = ()
) -> Iterator[DifferingEvent]:
    """All that differ, in the order of the first sequence; arguments as of ``first_differing_event``.

    Behind an event that the other lane does not have at its place, that lane is out of step: what follows says little.
    """
    kinds = {item.split(":")[1] for item in ignore if item.startswith("event:") and item.count(":") == 1}
    one = [event for event in one if event.kind not in kinds]
    other = [event for event in other if event.kind not in kinds]
    lanes, came = _by_lane(other), _ended_at(other)
    seen: dict[int, int] = defaultdict(int)
    end = _ended_at(one)
    for place, event in enumerate(one):
        index = seen[event.lane]
        seen[event.lane] += 1
        counterpart = lanes[event.lane][index][1] if index < len(lanes[event.lane]) else None
        if counterpart is None and place > end:
            continue
        found = _difference(place + 1, event, counterpart, ignore)
        if found is not None:
            yield found
    for lane, events in lanes.items():
        for place, event in events[seen[lane] :]:
            if place <= came:
                yield DifferingEvent(len(one) + 1, None, event)


def _by_lane(events: list[InsideEvent]) -> dict[int, list[tuple[int, InsideEvent]]]:
    lanes: dict[int, list[tuple[int, InsideEvent]]] = defaultdict(list)
    for place, event in enumerate(events):
        lanes[event.lane].append((place, event))
    return lanes


def _ended_at(events: list[InsideEvent]) -> int:
    """The place of the handler's end; behind all where it did not end."""
    ends = (place for place, event in enumerate(events) if event.kind == EventKind.HANDLING_ENDED)
    return next(ends, len(events))


def _difference(
    place: int, one: InsideEvent, other: InsideEvent | None, ignore: Collection[str]
) -> DifferingEvent | None:
    if other is None or one.kind != other.kind:
        return DifferingEvent(place, one, other)
    part = _differing_part(one, other, ignore)
    return None if part is None else DifferingEvent(place, one, other, part)


def _words(found: DifferingEvent) -> str:
    """For a replay that is compared with a recording."""
    if found.one is None:
        assert found.other is not None
        return f"{event_words(found.other)} came, which was not recorded"
    if found.other is None:
        return f"{event_words(found.one)} was recorded, nothing came"
    if found.part is None or found.one.about.get("asked") != found.other.about.get("asked"):
        return f"{event_words(found.one)} was recorded, {event_words(found.other)} came"
    left, right = ("nothing" if text is None else text for text in (found.part.one, found.part.other))
    return f"{event_words(found.one)}: {found.part.path}: {left} was recorded, {right} came"


def _differing_part(one: InsideEvent, other: InsideEvent, ignore: Collection[str]) -> DifferingPart | None:
    if one.kind == EventKind.ROWS and not _are_comparable(one.about, other.about):
        return None
    begin = f"event:{one.kind}:"
    paths = {item.removeprefix(begin) for item in ignore if item.startswith(begin)}
    is_same = _is_same_logged if one.kind == EventKind.LOG_RECORD else is_equal
    return first_differing_part(one.about, other.about, paths, is_same=is_same)


def _are_comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """An older recorder wrote no ``rows`` where they were long."""
    return all("rows" in about and _HAS_PLACEHOLDERS not in about for about in (one, other))


def _is_same_logged(one: Any, other: Any) -> bool:
    """But for numbers, of ports above all, and addresses. The texts are kept as they are: a secret is masked by its value."""
    if isinstance(one, str) and isinstance(other, str):
        return _plain(one) == _plain(other)
    return is_equal(one, other)


def _plain(text: str) -> str:
    return _NUMBER.sub("N", _ADDRESS.sub("A", text))


def event_words(event: InsideEvent) -> str:
    """An event in a few words: its kind, and what tells it from others."""
    about = event.about
    if event.kind == EventKind.MISS:
        return f"{about.get('missed')} {asked_words(about.get('asked'))} without a recorded answer"
    if "asked" in about:
        return f"{event.kind} {asked_words(about['asked'])}"
    names = [
        str(about[name])
        for name in ("method", "target", "source", "name", "logger", "type", "status")
        if name in about
    ]
    return " ".join([event.kind, *names])


def asked_words(asked: Any) -> str:
    """A question in a few words."""
    if not isinstance(asked, dict):
        return short(asked)
    if isinstance(asked.get("statement"), str):
        return short(" ".join(asked["statement"].split()))
    texts = [text for value in asked.values() for text in _texts(value)]
    return short(" ".join(texts)) if texts else short(asked)


def _texts(value: Any) -> list[str]:
    """A text, or those in a list, such as the words of a command."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]

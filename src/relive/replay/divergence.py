"""Where two runs of one request part, and of which class that is. Pure.

1. Another way was taken where the kinds of two events differ, or one asked something else: another statement, command, method,
   host or path, or one run has the event and the other has not.
2. Only a time differs where the event is a reading of a clock, or the texts that differ are equal but for dates and times of day
   as ISO 8601, HTTP (RFC 9110) and most logs write them. Seconds since 1970 as a bare number are not known for a time: numbers of
   orders look like that, too.
3. All else is payload: the same was done with other values.

Behind an event of rule 1 its lane is out of step, so of each lane nothing is told that comes after it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from difflib import unified_diff
from typing import Any

from relive.model.divergence import Divergence, DivergenceClass
from relive.model.outcome import InsideEvent
from relive.recording.events import EventKind
from relive.replay.difference import DifferingPart
from relive.replay.sequence import DifferingEvent, differing_events, event_words

__all__ = ["divergences", "event_lines", "text_changes"]

_MOST_LINES = 400
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|[+-]\d\d:?\d\d))?)?"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), )?\d\d? (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4}"
    r"(?: \d\d:\d\d:\d\d(?: GMT)?)?"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
)
# What names of a question what it is about; everything else in it is a value.
_SUBJECTS = ("statement", "method", "host", "path", "operation")


def divergences(
    before: list[InsideEvent], after: list[InsideEvent], ignore: Collection[str] = ()
) -> list[Divergence]:
    """The first event that differs, and behind it the first of each class that is not told by then, in their order.

    Args:
        ignore: ``event:KIND`` or ``event:KIND:PATH``, as ``relive replay --ignore`` has it.
    """
    found: dict[DivergenceClass, Divergence] = {}
    for one in _in_step(differing_events(before, after, ignore)):
        divergence = _divergence_of(one)
        found.setdefault(divergence.kind, divergence)
        if len(found) == len(DivergenceClass):
            break
    return list(found.values())


def _in_step(differing: Iterator[DifferingEvent]) -> Iterator[DifferingEvent]:
    """Without those of lanes that are out of step by then."""
    parted: set[int] = set()
    for one in differing:
        event = one.one or one.other
        assert event is not None
        if event.lane not in parted:
            if _class_of(one) is DivergenceClass.WAY:
                parted.add(event.lane)
            yield one


def _divergence_of(found: DifferingEvent) -> Divergence:
    kind, part = _class_of(found), found.part
    if kind is DivergenceClass.WAY or part is None:
        old, new = (None if event is None else event_words(event) for event in (found.one, found.other))
        return Divergence(
            kind=kind,
            place=found.place,
            before=found.one,
            after=found.other,
            words=f"{old or 'nothing'} in the first, {new or 'nothing'} in the second",
        )
    assert found.one is not None
    old, new = ("nothing" if text is None else text for text in (part.one, part.other))
    return Divergence(
        kind=kind,
        place=found.place,
        before=found.one,
        after=found.other,
        path=part.path,
        old=part.one,
        new=part.other,
        words=f"{event_words(found.one)}: {part.path}: {old} in the first, {new} in the second",
    )


def _class_of(found: DifferingEvent) -> DivergenceClass:
    if found.one is None or found.other is None or found.part is None:
        return DivergenceClass.WAY
    if _subject(found.one) != _subject(found.other):
        return DivergenceClass.WAY
    return DivergenceClass.TIME if _is_a_time(found.one, found.part) else DivergenceClass.PAYLOAD


def _subject(event: InsideEvent) -> list[Any]:
    """What an event is about, apart from the values in it."""
    about, asked = event.about, event.about.get("asked")
    if event.kind == EventKind.HANDLING_STARTED:
        return [about.get("method"), str(about.get("target")).partition("?")[0]]
    if isinstance(asked, dict):
        command = asked.get("command", asked.get("commands"))
        first = command[:1] if isinstance(command, list) else command
        return [first, *(asked.get(name) for name in _SUBJECTS)]
    return [about.get(name) for name in ("source", "name", "logger", "type", "missed")]


def _is_a_time(event: InsideEvent, part: DifferingPart) -> bool:
    if event.kind == EventKind.CLOCK:
        return part.path.startswith("$.value")
    if part.values is None or not all(isinstance(one, str) for one in part.values):
        return False
    one, other = part.values
    return bool(_TIME.search(one)) and _TIME.sub("T", one) == _TIME.sub("T", other)


def event_lines(events: Sequence[InsideEvent]) -> list[str]:
    """A line for each event, as far as its kind and what it was about go."""
    return [f"lane {one.lane}  {event_words(one)}" for one in events]


def text_changes(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """As ``diff -u`` tells it, without the lines that name files; empty where they are equal; the first 400 lines."""
    return [line.rstrip("\n") for line in list(unified_diff(before, after, lineterm=""))[2:_MOST_LINES]]

"""In which order things happened in a branch, and what changed places between two. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from relive.intervention.schedules import DELAYED_KINDS
from relive.model.chaos import Swap
from relive.recording.events import Event, EventKind
from relive.replay.sequence import compared_event, event_words, is_call

__all__ = ["Happened", "noted_delays", "order_of", "swap_between", "words_at"]

_MOST = 2000  # events that are compared with each other
_ORDERED = DELAYED_KINDS | {EventKind.HANDLING_ENDED}


@dataclass(frozen=True, slots=True)
class Happened:
    """One event in the order of time.

    Attributes:
        lane: (pid, request, lane): within one the order is given.
        number: in its lane, from 1.
        place: as ``relive_chaos`` counts; None: no delay can be there.
        is_call: somebody was asked for something.
    """

    lane: tuple[int, int, int]
    number: int
    place: str | None
    words: str
    is_call: bool = False


def order_of(events: Sequence[Event]) -> list[Happened]:
    """What the processes of a branch did; clocks, chance and the like aside."""
    targets = _targets(events)
    numbers: dict[tuple[int, int, int], int] = defaultdict(int)
    places: dict[tuple[int, int, int], int] = defaultdict(int)
    found = []
    for event in sorted(events, key=lambda one: one.mono_ns):
        if event.kind not in _ORDERED:
            continue
        lane = int(event.fields.get("pid", 0)), event.request, int(event.fields.get("lane", 0))
        numbers[lane] += 1
        place = None
        if event.kind in DELAYED_KINDS:
            places[lane] += 1
            place = ":".join(map(str, (*lane, places[lane])))
        compared = compared_event(event)
        about = f" of {targets[lane[:2]]}" if lane[:2] in targets else " outside of requests"
        words = event_words(compared) + ("" if event.kind is EventKind.HANDLING_STARTED else about)
        found.append(Happened(lane, numbers[lane], place, words, is_call(compared)))
    return found


def noted_delays(events: Sequence[Event]) -> dict[str, float]:
    """Place to milliseconds of the delays that processes noted."""
    return {
        str(one.fields.get("text")): float(one.fields.get("ms", 0.0))
        for one in events
        if one.kind is EventKind.NOTE and one.fields.get("about") == "chaos"
    }


def words_at(order: Sequence[Happened], place: str) -> str:
    """Before or after which event a place is."""
    when = "before" if ":b" in place else "after"
    event = place.replace(":b", ":")
    return f"{when} {next((one.words for one in order if one.place == event), 'an event that did not come this time')}"


def swap_between(
    usual: Sequence[Happened], other: Sequence[Happened], delayed: Collection[str] = ()
) -> Swap | None:
    """The pair that changed places and that lies closest together in the usual order; None: none did.

    Events of one lane keep their order, so only pairs of two lanes count. Pairs with a call count first: it is what one does that
    the other can meet. Before that count pairs with an event of a lane that was delayed: where hundreds of requests are sent again,
    others change places in any two runs.

    Args:
        delayed: places.
    """
    after: Mapping[tuple[object, int], int] = {(one.lane, one.number): at for at, one in enumerate(other)}
    both = [one for one in usual if (one.lane, one.number) in after][:_MOST]
    lanes = {place.rpartition(":")[0] for place in delayed}
    found: list[tuple[bool, bool, int, int, Happened, Happened]] = []
    for at, first in enumerate(both):
        for to in range(at + 1, len(both)):
            then = both[to]
            distance = after[first.lane, first.number] - after[then.lane, then.number]
            if first.lane != then.lane and distance > 0:
                is_beside = bool(lanes) and not lanes & {
                    ":".join(map(str, one.lane)) for one in (first, then)
                }
                is_call = first.is_call or then.is_call
                found.append((is_beside, not is_call, to - at, distance, first, then))
    if not found:
        return None
    *_, first, then = min(found, key=lambda one: one[:4])
    return Swap(first=first.words, then=then.words, more=len(found) - 1)


def _targets(events: Sequence[Event]) -> dict[tuple[int, int], str]:
    return {
        (int(one.fields.get("pid", 0)), one.request): f"{one.fields.get('method')} {one.fields.get('target')}"
        for one in events
        if one.kind is EventKind.HANDLING_STARTED
    }

"""In which order things happened, and which pair changed places."""

from __future__ import annotations

from typing import Any

from relive.intervention.swaps import noted_delays, order_of, swap_between, words_at
from relive.recording.events import Event, EventKind

READ, MOVE = 2, 3


def event(at: int, request: int, kind: EventKind, **fields: Any) -> Event:
    return Event(at, at, at, kind, 1, request, b"", {"pid": 5, "lane": 1, **fields})


def query(at: int, request: int, statement: str) -> Event:
    return event(at, request, EventKind.QUERY, asked={"statement": statement}, answer=1)


def began(at: int, request: int, target: str) -> Event:
    return event(at, request, EventKind.HANDLING_STARTED, method="GET", target=target)


def ended(at: int, request: int) -> Event:
    return event(at, request, EventKind.HANDLING_ENDED, status=200)


BEGUN = [began(1, READ, "/read"), began(2, MOVE, "/move")]
USUAL = [*BEGUN, query(3, READ, "select"), ended(4, READ), query(5, MOVE, "update"), ended(6, MOVE)]
OTHER = [*BEGUN, query(3, READ, "select"), ended(9, READ), query(5, MOVE, "update"), ended(6, MOVE)]


def test_the_nearest_pair_with_a_call_is_told_and_others_are_counted():
    swap = swap_between(order_of(USUAL), order_of(OTHER))
    assert swap is not None
    assert swap.first == "handling-ended 200 of GET /read"
    assert swap.then == "query 'update' of GET /move"
    assert swap.more == 1  # the end of the move, too


def test_a_pair_with_a_delayed_lane_is_told_before_nearer_ones_of_others():
    other_two = [began(1, 8, "/a"), began(1, 9, "/b")]
    usual = [*other_two, *USUAL, query(7, 8, "one"), query(8, 9, "two")]
    turned = [*other_two, *OTHER, query(7, 9, "two"), query(8, 8, "one")]
    nearest = swap_between(order_of(usual), order_of(turned))
    caused = swap_between(order_of(usual), order_of(turned), ["5:2:1:b2"])
    assert nearest is not None and caused is not None
    assert nearest.more == caused.more and "query" in nearest.first
    assert (caused.first, caused.then) == ("handling-ended 200 of GET /read", "query 'update' of GET /move")


def test_equal_orders_have_no_pair():
    assert swap_between(order_of(USUAL), order_of(USUAL)) is None
    assert swap_between([], order_of(USUAL)) is None


def test_what_only_one_has_is_no_pair():
    assert swap_between(order_of(USUAL), order_of([*BEGUN, query(3, MOVE, "update")])) is None


def test_clocks_and_chance_have_no_place_in_the_order():
    events = [event(0, READ, EventKind.CLOCK, source="time.time", value=1.0), *USUAL]
    assert order_of(events) == order_of(USUAL)


def test_places_count_what_can_be_delayed_and_are_the_same_in_each_run():
    order = order_of(USUAL)
    assert [one.place for one in order] == ["5:2:1:1", "5:3:1:1", "5:2:1:2", None, "5:3:1:2", None]
    assert words_at(order, "5:2:1:2") == "after query 'select' of GET /read"
    assert words_at(order, "5:2:1:b2") == "before query 'select' of GET /read"
    assert "did not come" in words_at(order, "5:9:1:1")


def test_noted_delays_are_told():
    note = event(3, READ, EventKind.NOTE, about="chaos", text="5:2:1:2", ms=54.5)
    other = event(3, READ, EventKind.NOTE, about="disk", text="full", lost=1)
    assert noted_delays([note, other, *USUAL]) == {"5:2:1:2": 54.5}

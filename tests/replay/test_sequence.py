"""Sequences of events inside are compared lane by lane, by what was asked and came back; the first that differs is named."""

from __future__ import annotations

import random

import pytest

from relive.model.outcome import InsideEvent, Miss
from relive.recording.events import WITHIN_A_CALL, Event, EventKind
from relive.replay.sequence import first_differing_event, miss_words, misses_of, sequence_of

STARTED = InsideEvent(kind="handling-started", lane=1, about={"method": "GET", "target": "/"})
ENDED = InsideEvent(kind="handling-ended", lane=1, about={"status": 500})


def query(text: str, answer: object = 1, lane: int = 1) -> InsideEvent:
    return InsideEvent(kind="query", lane=lane, about={"asked": {"statement": text}, "answer": answer})


def clock(value: float, lane: int = 1) -> InsideEvent:
    return InsideEvent(kind="clock", lane=lane, about={"source": "time.time", "value": value})


def rows(*values: object, **more: object) -> InsideEvent:
    return InsideEvent(kind="rows", lane=1, about={"rows": [list(values)], **more})


def long(begins: str, length: int, crc: int) -> object:
    return {"$": ["long", begins, length, crc]}


CASES = {
    "the same long value": ([rows(long("a", 9, 1))], [rows(long("a", 9, 1))], None),
    "a long value that ends otherwise": (
        [rows(long("a", 9, 1))],
        [rows(long("a", 9, 2))],
        (1, "rows: $.rows[0][0].$[3]: '1' was recorded, '2' came"),
    ),
    "a long value with a placeholder": (
        [rows(long("a", 9, 1))],
        [rows(long("a", 24, 2), has_placeholders=True)],
        None,
    ),
    "more rows that are cut": (
        [rows(1, rows_cut=3)],
        [rows(1, rows_cut=4)],
        (1, "rows: $.rows_cut: '3' was recorded, '4' came"),
    ),
    "long rows of an older recorder": ([InsideEvent(kind="rows", lane=1, about={})], [rows(1)], None),
    "nothing": ([STARTED, query("select"), ENDED], [STARTED, query("select"), ENDED], None),
    "another question": (
        [STARTED, query("select"), ENDED],
        [STARTED, query("update"), ENDED],
        (2, "query 'select' was recorded, query 'update' came"),
    ),
    "another answer": (
        [query("select", [1, 2])],
        [query("select", [1, 3])],
        (1, "query 'select': $.answer[1]: '2' was recorded, '3' came"),
    ),
    "another reading": (
        [STARTED, clock(1.5), ENDED],
        [STARTED, clock(2.5), ENDED],
        (2, "clock time.time: $.value: '1.5' was recorded, '2.5' came"),
    ),
    "less": (
        [STARTED, query("select"), ENDED],
        [STARTED],
        (2, "query 'select' was recorded, nothing came"),
    ),
    "more": (
        [STARTED, query("select", lane=2)],
        [STARTED, query("select", lane=2), query("delete", lane=3)],
        (3, "query 'delete' came, which was not recorded"),
    ),
    "lanes that interleave otherwise": (
        [query("a", lane=1), query("b", lane=2), query("c", lane=1)],
        [query("b", lane=2), query("a", lane=1), query("c", lane=1)],
        None,
    ),
    "less, after the handler's end": ([STARTED, ENDED, query("a", lane=2)], [STARTED, ENDED], None),
    "more, after the handler's end": ([STARTED, ENDED], [STARTED, ENDED, query("a", lane=2)], None),
    "done after the handler's end": (
        [STARTED, query("a", lane=2), ENDED],
        [STARTED, ENDED, query("a", lane=2)],
        None,
    ),
    "otherwise after the handler's end": (
        [STARTED, ENDED, query("a", lane=2)],
        [STARTED, ENDED, query("b", lane=2)],
        (3, "query 'a' was recorded, query 'b' came"),
    ),
    "a miss": (
        [query("a")],
        [InsideEvent(kind="miss", lane=1, about={"asked": {"statement": "b"}, "missed": "query"})],
        (1, "query 'a' was recorded, query 'b' without a recorded answer came"),
    ),
}


@pytest.mark.parametrize(("recorded", "replayed", "expected"), CASES.values(), ids=CASES)
def test_the_first_event_that_differs(recorded, replayed, expected):
    found = first_differing_event(recorded, replayed)
    assert (None if found is None else (found[0], found[3])) == expected


@pytest.mark.parametrize("ignore", ["event:query", "event:query:$.asked.statement", "event:query:$.asked"])
def test_what_is_ignored_may_differ(ignore):
    assert first_differing_event([query("a"), clock(1)], [query("b"), clock(1)], [ignore]) is None
    assert first_differing_event([clock(1)], [clock(2)], [ignore]) is not None


def test_equal_lanes_are_equal_however_they_are_mixed():
    chance = random.Random(7)
    events = [query(f"{lane}:{number}", lane=lane) for lane in range(1, 5) for number in range(20)]
    for _ in range(50):
        mixed = sorted(events, key=lambda event: (chance.random(), event.lane))
        mixed = [next(e for e in lanes) for lanes in _merged(events, mixed)]
        assert first_differing_event(events, mixed) is None
        broken = [event for event in mixed if event.about["asked"]["statement"] != "3:7"]
        found = first_differing_event(events, broken)
        assert found is not None and "3:7" in found[3]


def _merged(events, mixed):
    """The lanes of ``events`` in their own order, taken in turns as ``mixed`` has them."""
    lanes = {lane: iter([event for event in events if event.lane == lane]) for lane in range(1, 5)}
    return [lanes[event.lane] for event in mixed]


def inside(what: EventKind, /, request: int = 1, data: bytes = b"", **fields: object) -> Event:
    return Event(1, 1, 1, what, 0, request, data, {"pid": 7, "lane": 1, **fields})


def test_times_numbers_and_addresses_are_not_compared():
    asked = {"asked": {"url": "/"}, "answer": (1, 2)}
    one = [
        inside(EventKind.HTTP_CALL, ns=5, own_seq=1, thread=3, **asked),
        inside(EventKind.LOG_RECORD, text="<X at 0x7f00>", level="INFO", where="a:1"),
        inside(EventKind.NOTE, text="of ours"),
        inside(EventKind.CLOCK, request=2, source="time.time", value=1),
    ]
    other = [
        inside(EventKind.HTTP_CALL, ns=9, own_seq=4, thread=1, played=True, **asked),
        inside(EventKind.LOG_RECORD, text="<X at 0x7fff>", level="INFO", where="a:2"),
    ]
    recorded, came = sequence_of(one, 7, 1), sequence_of(other, 7, 1)
    assert first_differing_event(recorded, came) is None
    assert len(recorded) == len(came) == 2
    assert sequence_of(one, 8, 1) == []


def test_what_was_logged_is_told_as_it_was():
    """A secret with digits is known by its value alone."""
    one, other = (
        sequence_of([inside(EventKind.LOG_RECORD, text=text, level="INFO")], 7, 1)
        for text in ("opened with ****", "opened with q7lki67ki")
    )
    found = first_differing_event(one, other)
    assert found is not None and "q7lki67ki" in found[3]


def test_what_is_long_is_compared_by_its_digest():
    one, same, other = (
        sequence_of([inside(EventKind.QUERY, asked={"x": text * 5000}, data=text.encode())], 7, 1)
        for text in ("ab", "ab", "cd")
    )
    assert one == same != other
    assert len(one[0].model_dump_json()) < 500


def test_a_miss_that_passed_is_the_call_itself_in_the_sequence_and_told_beside_it():
    passed = inside(EventKind.MISS, kind="query", asked={"s": "a"}, policy="pass")
    failed = inside(
        EventKind.MISS, kind="query", asked={"s": "b"}, policy="fail", nearest={"s": "c"}, differs=["$.s"]
    )
    assert [event.about for event in sequence_of([passed, failed], 7, 1)] == [
        {"asked": {"s": "b"}, "missed": "query"}
    ]
    assert [(miss.policy, miss.differs) for miss in misses_of([passed, failed])] == [
        ("pass", []),
        ("fail", ["$.s"]),
    ]


def test_what_was_part_of_another_call_is_not_compared():
    events = [
        Event(seq, seq, seq, EventKind.QUERY, 0, 1, b"", {"pid": 7, "lane": lane, "asked": {"n": seq}})
        for seq, lane in ((1, 1), (2, 1 + WITHIN_A_CALL), (3, 1))
    ]
    assert [one.about["asked"]["n"] for one in sequence_of(events, 7, 1)] == [1, 3]


def test_no_option_is_offered_that_takes_any_answer():
    """The answer to another statement or command would be none to this one, and ``--ignore`` of it takes any for any."""

    def words(asked: dict[str, object], nearest: dict[str, object] | None, *differs: str) -> str:
        return miss_words(
            Miss(
                kind="query",
                asked=asked,
                nearest=nearest,
                differs=list(differs),
                policy="fail",
                to="10.0.0.1:5432",
            )
        )

    insert = {"statement": "insert into orders values ($1)", "parameters": ["a"]}
    told = words(insert, {**insert, "parameters": ["b"]}, "$.parameters[0]")
    assert told.endswith("to take that: --ignore '$.parameters[0]'")
    assert "no call with this statement is recorded" in words(insert, None)
    for subject in ("$.statement", "$.command[0]", "path"):
        assert "--ignore" not in words(insert, {"statement": "CONNECT"}, "$.parameters", subject)

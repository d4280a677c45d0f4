"""Where two sequences of events part, and whether that is a time, another value, or another way."""

from __future__ import annotations

import pytest

from relive.model.divergence import DivergenceClass
from relive.model.outcome import InsideEvent
from relive.replay.divergence import divergences, event_lines, text_changes

TIME, PAYLOAD, WAY = DivergenceClass.TIME, DivergenceClass.PAYLOAD, DivergenceClass.WAY
STARTED = InsideEvent(kind="handling-started", lane=1, about={"method": "GET", "target": "/a?n=1"})


def query(text: str, parameters: object = None, answer: object = 1, lane: int = 1) -> InsideEvent:
    asked = {"statement": text, "parameters": parameters}
    return InsideEvent(kind="query", lane=lane, about={"asked": asked, "answer": answer})


def clock(value: float, lane: int = 1) -> InsideEvent:
    return InsideEvent(kind="clock", lane=lane, about={"source": "time.time", "value": value})


def called(path: str, body: str = "") -> InsideEvent:
    return InsideEvent(
        kind="http-call", lane=1, about={"asked": {"method": "GET", "host": "a", "path": path, "body": body}}
    )


def logged(text: str) -> InsideEvent:
    return InsideEvent(kind="log-record", lane=1, about={"logger": "a", "level": "INFO", "text": text})


def redis(*words: str) -> InsideEvent:
    return InsideEvent(kind="redis-command", lane=1, about={"asked": {"command": list(words)}, "answer": 1})


CASES = {
    "nothing": ([STARTED, query("a")], [STARTED, query("a")], []),
    "a clock": ([clock(1.5), query("a")], [clock(2.5), query("a")], [(TIME, 1)]),
    "a time in a parameter": (
        [query("a", ["2026-11-23T01:02:03.5Z"])],
        [query("a", ["2026-11-24 11:12:13+01:00"])],
        [(TIME, 1)],
    ),
    "a header's date": (
        [called("/", "Mon, 23 Nov 2026 01:02:03 GMT")],
        [called("/", "Tue, 24 Nov 2026 01:02:04 GMT")],
        [(TIME, 1)],
    ),
    "a number that could be a time": ([query("a", [1763000000])], [query("a", [1763000001])], [(PAYLOAD, 1)]),
    "a time, and more": ([query("a", ["at 01:02:03, 5"])], [query("a", ["at 01:02:04, 6"])], [(PAYLOAD, 1)]),
    "another answer": ([query("a", answer=[1, 2])], [query("a", answer=[1, 3])], [(PAYLOAD, 1)]),
    "another parameter": ([query("a", [1])], [query("a", [2])], [(PAYLOAD, 1)]),
    "another statement": ([query("a")], [query("b")], [(WAY, 1)]),
    "another path": ([called("/a")], [called("/b")], [(WAY, 1)]),
    "another command": ([redis("GET", "a")], [redis("SET", "a")], [(WAY, 1)]),
    "another key": ([redis("GET", "a")], [redis("GET", "b")], [(PAYLOAD, 1)]),
    "another kind": ([query("a")], [clock(1.0)], [(WAY, 1)]),
    "less": ([STARTED, query("a")], [STARTED], [(WAY, 2)]),
    "more": ([STARTED], [STARTED, query("a")], [(WAY, 2)]),
    "numbers in a log": ([logged("took 5 ms")], [logged("took 6 ms")], []),
    "one of each class, in their order": (
        [clock(1.0), query("a", [1]), query("b"), clock(5.0)],
        [clock(2.0), query("a", [2]), query("c"), clock(6.0)],
        [(TIME, 1), (PAYLOAD, 2), (WAY, 3)],
    ),
    "behind another way its lane says nothing": (
        [query("a"), query("b", [1])],
        [query("z"), query("b", [2])],
        [(WAY, 1)],
    ),
    "another lane goes on": (
        [query("a"), query("b", [1], lane=2)],
        [query("z"), query("b", [2], lane=2)],
        [(WAY, 1), (PAYLOAD, 2)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_first_of_each_class_is_found(case: str) -> None:
    before, after, expected = CASES[case]
    assert [(one.kind, one.place) for one in divergences(before, after)] == expected


def test_what_may_differ_is_passed_over() -> None:
    found = divergences([clock(1.0), query("a", [1])], [clock(2.0), query("a", [2])], ["event:clock"])
    assert [one.kind for one in found] == [PAYLOAD]
    assert found[0].words == "query 'a': $.asked.parameters[0]: '1' in the first, '2' in the second"
    assert (found[0].path, found[0].old, found[0].new) == ("$.asked.parameters[0]", "'1'", "'2'")


def test_what_only_one_has_is_told_as_nothing_in_the_other() -> None:
    (found,) = divergences([STARTED, query("a")], [STARTED])
    assert found.words == "query 'a' in the first, nothing in the second"
    assert found.after is None and found.before == query("a")


def test_sequences_are_told_line_by_line() -> None:
    changes = text_changes(event_lines([STARTED, query("a")]), event_lines([STARTED, query("b")]))
    assert changes[-2:] == ["-lane 1  query 'a'", "+lane 1  query 'b'"]
    assert text_changes(["a"], ["a"]) == []

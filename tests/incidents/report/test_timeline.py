"""Events become rows that tell when things began, how long they took, and what came of them."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from relive.incidents.report.masking import Mask
from relive.incidents.report.proxied import Proxied, masked_exchange
from relive.incidents.report.timeline import Row, Timeline, folded, make_timeline, near_failure
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchanges
from relive.recording.reader import Recording

from .builders import MS, OWN_REQUEST, WALL_NS, Events, paying, record_by_proxy


def told(rows: list[Row]) -> list[tuple[float, str, str, str, float | None]]:
    """(at, label, what, result, took), times in milliseconds."""
    return [
        (row.at_ns / MS, row.label, row.what, row.result, None if row.took_ns is None else row.took_ns / MS)
        for row in rows
    ]


def of(events: list[Event], proxied: Proxied | None = None, commits: list[Event] | None = None) -> Timeline:
    made = make_timeline(events, proxied, commits or [])
    assert made is not None
    return made


@pytest.fixture
def proxied(tmp_path: Path) -> Proxied:
    record_by_proxy(tmp_path)
    recording = Recording(tmp_path / "capsules" / "pay" / "L1" / "recording")
    return masked_exchange(Exchanges(recording).by_number(7), Mask())


INSIDE = [
    (0.0, "handler", "POST /pay?token=<secret:0a0b0c0d>", "500 Internal Server Error", 22.0),
    (0.1, "readings", "time.time × 4", "1700000001.35 … 1700000001.65", None),
    (1.0, "query", "SELECT … FROM orders WHERE id = ?", "3 rows", 2.0),
    (3.5, "redis", "GET cart:17", "b'2 books'", 0.5),
    (4.0, "http", "GET http://rates:8080/EUR?day=1", "503 Service Unavailable", 4.0),
    (9.0, "http", "GET http://rates:8080/EUR?day=2", "TimeoutError: timed out", 10.0),
    (20.0, "log", "no rate for EUR", "ERROR", None),
    (20.5, "clock", "time.monotonic", "3.5", None),
    (21.0, "failure", "KeyError: 'EUR'", "escaped from the handler", None),
]


def test_events_from_inside_are_told_in_the_order_in_which_things_began():
    events = paying()
    random.Random(1).shuffle(events)
    timeline = of(events)
    assert told(folded(timeline.rows)) == INSIDE
    assert (timeline.began_wall_ns, timeline.took_ns) == (WALL_NS + MS, 22 * MS)
    assert [row.what for row in timeline.rows if row.outside] == ["time.monotonic"]
    assert [row.lane for row in timeline.rows if row.label == "http"] == [2, 1]


def test_lanes_are_counted_as_they_appear_whatever_the_recorder_calls_them():
    events = Events()
    for at, lane, request in (
        (1, 1, OWN_REQUEST),
        (2, 3345685958047722, OWN_REQUEST),
        (3, 4347364756368860, 0),
    ):
        events.add(EventKind.RANDOM, at, lane=lane, request=request, source="random.random", value=0.5)
    events.add(EventKind.RANDOM, 4, lane=3345685958047722, source="random.random", value=0.5)
    rows = of(events.made).rows
    assert [(row.lane, row.outside) for row in rows] == [(1, False), (2, False), (1, True), (2, False)]


def test_the_proxys_request_alone_is_a_timeline(proxied):
    timeline = of([], proxied)
    assert told(timeline.rows) == [
        (0.0, "request", "POST /pay?token=<secret>&x=1", "500 Internal Server Error", 24.5)
    ]


def test_both_together_count_from_when_the_request_was_handed_on(proxied):
    commit = Event(
        5, proxied.began_mono_ns + 6 * MS, 0, EventKind.COMMIT_TAKEN, fields={"commit": "c0ffee" * 10}
    )
    timeline = of(paying(), proxied, [commit])
    rows = told(folded(timeline.rows))
    assert rows[0][:2] == (0.0, "request")
    assert rows[1][:2] == (1.0, "handler")
    assert (6.0, "commit", "commit c0ffeec0ff", "", None) in rows
    assert timeline.took_ns == int(24.5 * MS)


def test_nothing_known_is_no_timeline():
    assert make_timeline([]) is None


def test_a_request_without_its_beginning_counts_from_what_is_left_of_it():
    events = [event for event in paying() if event.kind is EventKind.HTTP_CALL]
    assert [row.at_ns for row in of(events).rows] == [0, 5 * MS]


def test_a_handler_without_an_end_failed():
    begun = paying()[0]
    (row,) = of([begun]).rows
    assert (row.result, row.failed, row.took_ns) == ("no end recorded", True, None)


def test_an_exception_out_of_a_handler_is_told_with_its_status():
    events = Events()
    events.add(EventKind.HANDLING_STARTED, 0, method="GET", target="/")
    events.add(EventKind.HANDLING_ENDED, 2, status=500, error={"type": "a.Boo", "text": "b"})
    (row,) = of(events.made).rows
    assert (row.result, row.failed, row.took_ns) == ("500 Internal Server Error, Boo: b", True, 2 * MS)


def test_an_answer_that_its_server_left_open_is_told_so():
    events = Events()
    events.add(EventKind.HANDLING_STARTED, 0, method="GET", target="/")
    events.add(EventKind.HANDLING_ENDED, 2, status=200, left=True)
    (row,) = of(events.made).rows
    assert (row.result, row.failed) == ("200 OK, answer left open", False)


def test_details_hold_what_was_asked_and_answered():
    rows = {row.kind: row for row in of(paying()).rows}
    handler = rows[EventKind.HANDLING_STARTED].details
    assert handler["body"]["text"] == '{"order": 17}'
    assert handler["answer"]["body"]["text"] == "Internal Server Error"
    query = rows[EventKind.QUERY].details
    assert query["asked"]["parameters"] == [17]
    assert (len(query["rows"]), query["rows_fetched"]) == (3, 3)
    calls = [row.details for row in of(paying()).rows if row.kind is EventKind.HTTP_CALL]
    assert calls[0]["body"]["text"] == "too busy"
    assert calls[1]["error"]["type"] == "builtins.TimeoutError"
    assert "body" not in rows[EventKind.FAILURE].details


def test_a_packed_answer_is_told_unpacked():
    events = Events()
    headers = [["Content-Encoding", "gzip"]]
    events.add(EventKind.HTTP_CALL, 1, answer={"headers": headers}, bytes=24, data=gzip.compress(b"tired"))
    (row,) = of(events.made).rows
    assert row.details["body"] == {"text": "tired", "size": 5, "cut": 0}


def test_readings_are_folded_within_a_lane_up_to_the_next_thing_in_it():
    events = Events()
    for at, lane, source in [
        (1, 1, "time.time"),
        (2, 2, "time.time"),
        (3, 1, "random.random"),
        (4, 1, "time.time"),
    ]:
        events.add(
            EventKind.RANDOM if "random" in source else EventKind.CLOCK,
            at,
            lane=lane,
            source=source,
            value=at,
        )
    events.add(EventKind.LOG_RECORD, 5, text="x")
    events.add(EventKind.CLOCK, 6, source="time.time", value=6)
    rows = folded(of(events.made).rows)
    assert [(row.what, row.count, row.lane) for row in rows] == [
        ("time.time × 2, random.random", 3, 1),
        ("time.time", 1, 2),
        ("x", 1, 1),
        ("time.time", 1, 1),
    ]
    assert rows[0].details["readings"] == [["time.time", 1], ["random.random", 3], ["time.time", 4]]


@pytest.mark.parametrize(
    ("failed_at", "kept"), [(5, ["in", "4", "5", "failed"]), (None, ["in", "8", "9"])], ids=["failed", "slow"]
)
def test_of_what_happened_outside_of_the_request_the_last_before_it_failed_is_near(failed_at, kept):
    def row(at: int, what: str, kind: EventKind, *, outside: bool) -> Row:
        return Row(source="inside", seq=at, kind=kind, at_ns=at, what=what, result="", outside=outside)

    rows = [row(0, "in", EventKind.QUERY, outside=False)]
    for at in range(1, 10):
        rows.append(row(at, str(at), EventKind.QUERY, outside=True))
        if at == failed_at:
            rows.append(row(at, "failed", EventKind.FAILURE, outside=False))
    assert [one.what for one in near_failure(rows, most=2)] == kept


def test_what_failed_outside_of_the_request_is_near_wherever_it_stands():
    """An exception that was caught earlier does not push out the one that was not."""

    def row(at: int, kind: EventKind, *, failed: bool = False) -> Row:
        return Row(
            source="inside", seq=at, kind=kind, at_ns=at, what=str(at), result="", failed=failed, outside=True
        )

    rows = [row(at, EventKind.QUERY) for at in range(20)]
    rows[3] = row(3, EventKind.FAILURE, failed=True)
    rows[15] = row(15, EventKind.FAILURE, failed=True)
    assert [one.at_ns for one in near_failure(rows, most=2)] == [3, 13, 14, 15]

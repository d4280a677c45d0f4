"""The calls that are told first."""

from __future__ import annotations

from relive.incidents.report.timeline import Row
from relive.incidents.report.worst import worst_calls
from relive.recording.events import EventKind


def call(
    at: int, what: str, took: int, *, failed: bool = False, outside: bool = False, **details: object
) -> Row:
    return Row(
        source="inside", seq=at, kind=EventKind.HTTP_CALL, at_ns=at, took_ns=took, what=what, result="",
        failed=failed, outside=outside, details=details,
    )  # fmt: skip


def test_failed_ones_come_first_each_shape_once_then_the_slowest():
    rows = [
        call(1, "GET /slow", 900),
        call(2, "GET /rates/1", 5, failed=True),
        call(3, "GET /rates/2", 7, failed=True),
        call(4, "GET /rates/3", 800),
        call(5, "GET /quick", 1),
        call(6, "GET /stock", 3, failed=True),
        call(7, "connect", 999, within_a_call=True),
        call(8, "GET /settle", 999, outside=True),
        Row(
            source="inside", seq=9, kind=EventKind.LOG_RECORD, at_ns=9, what="no", result="ERROR", failed=True
        ),
    ]
    found = worst_calls(rows, 4)
    assert [(row.what, row.count) for row in found] == [
        ("GET /stock", 1),
        ("GET /rates/2", 2),
        ("GET /slow", 1),
        ("GET /quick", 1),
    ]
    assert len(worst_calls(rows, 2)) == 2

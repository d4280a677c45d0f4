"""What differs from the last good request: statuses, rows, times, and what was asked in only one of them."""

from __future__ import annotations

from relive.incidents.report.last_good import contrast
from relive.incidents.report.timeline import Row, Timeline
from relive.recording.events import EventKind

MS = 1_000_000


def request(result: str, took: int, *, failed: bool = False) -> Row:
    kind = EventKind.REQUEST_STARTED
    return Row(
        source="proxy",
        seq=1,
        kind=kind,
        at_ns=0,
        took_ns=took * MS,
        what="GET /p",
        result=result,
        failed=failed,
    )


def call(what: str, result: str, took: float = 1, *, failed: bool = False, outside: bool = False) -> Row:
    kind = EventKind.HTTP_CALL if what.startswith("GET") else EventKind.QUERY
    return Row(
        source="inside", seq=1, kind=kind, at_ns=0, took_ns=int(took * MS), what=what, result=result,
        failed=failed, outside=outside,
    )  # fmt: skip


def differences(now: list[Row], then: list[Row]) -> list[tuple[str, str, str]]:
    found = contrast(
        3,
        "/p",
        5,
        Timeline(began_wall_ns=0, took_ns=0, rows=now),
        Timeline(began_wall_ns=0, took_ns=0, rows=then),
    )
    return [(one.what, one.now, one.then) for one in found.differences]


def test_the_request_then_what_failed_then_the_rest():
    now = [
        request("500 Internal Server Error", 40, failed=True),
        call("SELECT a", "0 rows"),
        call("SELECT same", "2 rows"),
        call("GET http://r/1", "503 Service Unavailable", failed=True),
        call("SELECT slow", "1 row", 60),
    ]
    then = [
        request("200 OK", 4),
        call("SELECT a", "1 row"),
        call("SELECT same", "2 rows", 2),
        call("GET http://r/2", "200 OK"),
        call("SELECT slow", "1 row", 2),
        call("INSERT b", "1 row"),
    ]
    assert differences(now, then) == [
        ("GET /p", "500 Internal Server Error, 40.0 ms", "200 OK, 4.0 ms"),
        ("GET http://r/1", "503 Service Unavailable, 1.0 ms", "200 OK, 1.0 ms"),
        ("SELECT a", "0 rows, 1.0 ms", "1 row, 1.0 ms"),
        ("SELECT slow", "1 row, 60.0 ms", "1 row, 2.0 ms"),
        ("INSERT b", "not asked", "1 row, 1.0 ms"),
    ]


def test_another_number_of_calls_alike_is_one_difference_and_work_beside_is_none():
    now = [
        *(call(f"SELECT x WHERE id = {at}", "1 row") for at in range(50)),
        call("COMMIT", "no", outside=True),
    ]
    then = [call("SELECT x WHERE id = 1", "1 row")]
    assert differences(now, then) == [("SELECT x WHERE id = 0", "50 times, 1 row, 1.0 ms", "1 row, 1.0 ms")]


def test_what_is_too_much_is_counted():
    now = [call(f"SELECT {chr(97 + at)}x", "0 rows", failed=True) for at in range(25)]
    found = contrast(
        3,
        "/p",
        5,
        Timeline(began_wall_ns=0, took_ns=0, rows=now),
        Timeline(began_wall_ns=0, took_ns=0, rows=[]),
    )
    assert (len(found.differences), found.left_out) == (20, 5)

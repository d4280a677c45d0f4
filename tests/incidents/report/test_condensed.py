"""However many rows there are, the failure and the last steps before it stand among the few that are shown."""

from __future__ import annotations

import pytest

from relive.incidents.report.condensed import condensed
from relive.incidents.report.timeline import Row
from relive.recording.events import EventKind

MS = 1_000_000


def row(at: int, what: str, kind: EventKind = EventKind.QUERY, *, failed: bool = False, lane: int = 1) -> Row:
    return Row(
        source="inside",
        seq=at,
        kind=kind,
        at_ns=at * MS,
        took_ns=MS,
        lane=lane,
        what=what,
        result="1 row",
        failed=failed,
    )


REQUEST = row(0, "GET /", EventKind.REQUEST_STARTED, failed=True, lane=0)


def test_what_fits_stays_as_it_is():
    rows = [REQUEST, *(row(at, f"SELECT {at}") for at in range(1, 10))]
    assert condensed(rows, 10) == rows


@pytest.mark.parametrize("place", [3, 1500, 3042])
def test_the_failure_of_three_thousand_rows_is_shown_wherever_it_stands(place):
    rows = [REQUEST, *(row(at, f"SELECT {at}", lane=at % 2) for at in range(1, 3047))]
    rows[place] = row(place, "INSERT", failed=True)
    for most in (10, 60, 2000):
        shown = condensed(rows, most)
        assert len(shown) <= most
        assert rows[place] in shown
        assert rows[place - 1] in shown
        assert shown[0] is REQUEST
        assert sum(one.count for one in shown) == len(rows)
        assert [one.at_ns for one in shown] == sorted(one.at_ns for one in shown)


def test_rows_alike_become_one_that_tells_how_many_and_how_long():
    rows = [row(at, f"SELECT x FROM t WHERE id = {at}") for at in range(100)]
    first = condensed(rows, 10)[0]
    assert (first.what, first.count) == ("SELECT x FROM t WHERE id = 0 × 92", 92)
    assert (first.at_ns, first.took_ns, first.result) == (0, 92 * MS, "1 row, 92.0 ms together")


def test_of_very_many_failures_the_first_and_the_last_of_each_shape_stay():
    rows = [REQUEST, *(row(at, f"GET {at}", EventKind.HTTP_CALL, failed=True) for at in range(1, 1000))]
    shown = condensed(rows, 20)
    assert rows[-1] in shown
    assert rows[1] in shown
    assert all(one.failed for one in shown)
    assert len(shown) <= 20


def test_of_failures_of_too_many_shapes_the_last_stay():
    rows = [REQUEST, *(row(at, "GET /" + "ghijklmnop"[at % 10] * at, failed=True) for at in range(1, 90))]
    shown = condensed(rows, 10)
    assert shown == [REQUEST, *rows[-9:]]

"""A request of ten thousand steps that fails: in each picture, drawn or told, the failure stands, and what repeats is one."""

from __future__ import annotations

import pytest

from relive.cli.accounts import show_account
from relive.cli.terminal import Terminal
from relive.dashboard.lanes import figure, rows_table
from relive.incidents.report.condensed import condensed
from relive.incidents.report.detail import Account
from relive.incidents.report.page import incident_page
from relive.incidents.report.timeline import folded, make_timeline, near_failure
from relive.mcp.stories import story_of, timeline_of
from relive.recording.events import EventKind

from .builders import OWN_REQUEST, Events
from .conftest import Told

COUNT = 10_000
WHAT = "KeyError: 'the one that matters'"


def busy(failed_at: int, *, outside: bool) -> Events:
    """Queries of many shapes on two threads, calls that fail and are tried again, and in their midst the failure."""
    events = Events()
    events.add(EventKind.HANDLING_STARTED, 0, server="asgi", method="POST", target="/pay", headers=[])
    for number in range(COUNT):
        at = 1 + number / 10
        if number == failed_at:
            where = 0 if outside else OWN_REQUEST
            events.add(
                EventKind.FAILURE,
                at,
                request=where,
                type="builtins.KeyError",
                text="'the one that matters'",
                where="thread",
            )
        elif number % 50 == 7:
            asked = {"method": "GET", "url": f"http://rates/{'ghij'[number % 4] * (number % 30 + 1)}"}
            events.add(EventKind.HTTP_CALL, at, ns=1000, asked=asked, answer={"status": 503})
        else:
            told = {
                "system": "sqlite",
                "database": "x.db",
                "statement": f"SELECT {number} FROM t{number % 300}",
            }
            answer = {"rowcount": 1, "columns": ["a"], "rows": [[number]]}
            events.add(EventKind.QUERY, at, ns=2000, lane=1 + number % 2, asked=told, answer=answer)
    events.add(EventKind.HANDLING_ENDED, 1100, status=500)
    return events


@pytest.fixture(params=[(9, False), (5000, False), (COUNT - 3, False), (5000, True)], ids=str)
def account(request, told: Told) -> Account:
    failed_at, outside = request.param
    whole = told()
    timeline = make_timeline(busy(failed_at, outside=outside).made, whole.proxied)
    assert timeline is not None and len(timeline.rows) > COUNT
    return whole.model_copy(update={"timeline": timeline})


def test_the_failure_stands_in_what_is_told(account, capsys):
    show_account(Terminal(), account, everything=False)
    said = capsys.readouterr().out
    assert WHAT in said.partition("Timeline,")[2]
    assert len(said.splitlines()) < 200
    page = timeline_of(account, 0, 100, everything=False)
    assert page.next is None and WHAT in [row.what for row in page.items]
    assert story_of(account).timeline_rows == len(account.timeline.rows)


def test_the_failure_stands_in_what_is_drawn(account):
    page = incident_page(account)
    drawing = page.partition("<svg")[2].partition("</svg>")[0]
    assert drawing.count("<rect") <= 2000
    assert "the one that matters" in drawing.rpartition('<rect x="')[0] + drawing[-2000:]
    marked = [piece for piece in drawing.split("<rect") if 'class="failed"' in piece]
    assert any("the one that matters" in piece for piece in marked)
    rows = condensed(folded(near_failure(account.timeline.rows)), 2000)
    drawn = figure(rows)
    (crosses,) = (one for one in drawn["data"] if one["name"] == "failed")
    assert any("the one that matters" in text for text in crosses["customdata"])
    assert "the one that matters" in rows_table(condensed(rows, 300))

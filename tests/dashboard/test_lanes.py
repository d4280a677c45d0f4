"""The timeline as a drawing, and the frames as HTML."""

from __future__ import annotations

from relive.dashboard.frames import exceptions, frame_location
from relive.dashboard.lanes import figure, rows_table
from relive.dashboard.look import label
from relive.incidents.report.lanes import colour_of, lanes_from_above
from relive.incidents.report.timeline import Row
from relive.recording.events import EventKind

from .failures import OWN, package


def row(
    kind: EventKind = EventKind.QUERY, at_ms: float = 0, took_ms: float | None = None, **facts: object
) -> Row:
    made = Row(source="inside", seq=1, kind=kind, at_ns=int(at_ms * 1e6), lane=1, pid=7, what="SELECT 1", result="1 row",
               took_ns=None if took_ms is None else int(took_ms * 1e6))  # fmt: skip
    return made.model_copy(update=facts)


ROWS = [
    row(EventKind.REQUEST_STARTED, 0, 100, source="proxy", lane=0, pid=None, failed=True),
    row(EventKind.HANDLING_STARTED, 1, 90),
    row(at_ms=2, took_ms=30),
    row(at_ms=40, took_ms=1, failed=True, what="INSERT <b>", result="locked"),
    row(at_ms=5, lane=99123, outside=True),
    row(at_ms=6, lane=99124, outside=True),
    row(EventKind.HTTP_CALL, 50, 10, source="egress"),
]


def bars(drawn, name):
    return next(trace for trace in drawn["data"] if trace["name"] == name)


def test_each_row_is_a_bar_at_its_time_in_its_lane_with_the_colour_of_its_kind():
    drawn = figure(ROWS)
    queries = bars(drawn, "query")
    assert queries["base"][:2] == [2.0, 40.0]
    assert queries["x"][:2] == [30.0, 1.0]
    assert queries["marker"]["color"] == colour_of(EventKind.QUERY)
    assert drawn["layout"]["yaxis"]["categoryarray"][::-1] == [
        "proxy", "the service", "beside it 1", "beside it 2", "at its border",
    ]  # fmt: skip
    assert queries["y"] == ["the service", "the service", "beside it 1", "beside it 2"]


def test_what_takes_no_time_can_be_seen_and_failures_are_marked():
    drawn = figure(ROWS)
    assert all(width > 0 for width in bars(drawn, "query")["x"])
    failed = bars(drawn, "failed")
    assert failed["x"] == [40.5]
    assert failed["y"] == ["the service"]
    assert "failed" not in [trace["name"] for trace in figure(ROWS[1:3])["data"]]


def test_what_is_shown_under_the_pointer_is_no_markup():
    told = bars(figure(ROWS), "failed")["customdata"][0]
    assert "<b>query</b> at 40.00 ms, took 1.0 ms" in told
    assert "INSERT &lt;b&gt;" in told


def test_rows_in_words_mark_what_failed():
    told = rows_table(ROWS)
    assert told.count("rl-failed") == 2
    assert "INSERT &lt;b&gt;" in told
    assert "99123" not in told


def test_lanes_have_an_order():
    assert list(lanes_from_above(ROWS).values()) == [
        "proxy", "lane 1", "beside 1", "beside 2", "border",
    ]  # fmt: skip


def test_lanes_are_numbered_as_they_appear():
    """Their own numbers are hashes."""
    first, second = (ROWS[1].model_copy(update={"lane": lane}) for lane in (3345685958047722, 7))
    names = lanes_from_above([ROWS[0], first, second, first])
    assert list(names.values()) == ["proxy", "lane 1", "lane 2"]
    assert [lane[2] for lane in names] == [0, 3345685958047722, 7]


def test_own_frames_are_open_and_libraries_folded():
    told = exceptions(package())
    assert told.index("charge") < told.index("1 frame of libraries") < told.index("run_asgi")
    assert told.count("<details open>") == 1 + 0
    assert "<span class=rl-ran>  57      return rates[order.currency]</span>" in told
    assert "2 more locals were not kept." in told
    assert "Caused by" in told
    assert told.index("Caused by") < told.index("ValueError: no rate")


def test_a_long_value_is_folded_and_there_as_a_whole():
    told = exceptions(package())
    assert "x" * 100 + "…</summary>" in told or "…</summary>" in told
    assert "x" * 500 in told


def test_a_place_is_told_from_where_the_code_lies():
    assert frame_location(OWN, package()) == "charge in pay.py, line 57"
    assert frame_location(OWN, package(cwd="/")) == "charge in /srv/shop/pay.py, line 57"


def test_labels_are_plain_text_in_markdown():
    assert label("a [b](c) *d*\n`e` :red[f]") == r"a \[b\]\(c\) \*d\* \`e\` \:red\[f\]"

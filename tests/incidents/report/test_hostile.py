"""Whatever a service wrote into its events, each face of an incident can be made of it."""

from __future__ import annotations

import contextlib
import html
import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from relive.cli.accounts import show_account
from relive.cli.terminal import Terminal
from relive.incidents.report.condensed import condensed
from relive.incidents.report.detail import Account, RecordingFacts
from relive.incidents.report.har import har_of
from relive.incidents.report.last_good import contrast
from relive.incidents.report.page import incident_page
from relive.incidents.report.spans import spans_of
from relive.incidents.report.timeline import folded, make_timeline
from relive.incidents.report.worst import worst_calls
from relive.model.incident import Incident
from relive.recording.events import Event, EventKind

from .builders import package, sighting
from .test_har import entries
from .test_page import seen
from .test_shown import JSON
from .test_spans import parsed

FIELDS = (
    *(
        "own_seq",
        "pid",
        "lane",
        "thread",
        "ns",
        "body_ns",
        "asked",
        "answer",
        "error",
        "rows",
        "rows_cut",
        "query",
    ),
    *(
        "file",
        "bytes",
        "cut",
        "method",
        "target",
        "peer",
        "headers",
        "volatile",
        "status",
        "type",
        "text",
        "value",
    ),
)
PARTS = (
    *(
        "method",
        "url",
        "headers",
        "body",
        "status",
        "reason",
        "statement",
        "command",
        "commands",
        "argv",
        "server",
    ),
    *("database", "system", "operation", "bucket", "path", "type", "args", "rows", "columns"),
)
PAIRS = st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)).map(list), max_size=2)
VALUES = JSON | st.dictionaries(
    st.sampled_from(PARTS), JSON | PAIRS | st.just("http://[bad:x/?a=b"), max_size=4
)
EVENTS = st.builds(
    Event,
    st.integers(0, 99),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.sampled_from(EventKind),
    st.just(0),
    st.integers(0, 3),
    st.binary(max_size=20),
    st.dictionaries(st.sampled_from(FIELDS), VALUES | PAIRS, max_size=5),
)


def account(events: list[Event]) -> Account:
    incident = Incident(
        number=1, service="pay", life="L1", sighting=sighting(), before=None, at=None, last_seen_wall_ns=0
    )
    timeline = make_timeline(events)
    return Account(
        incident=incident,
        package=package(),
        stack=None,
        timeline=timeline,
        calls=worst_calls(timeline.rows, 5) if timeline is not None else [],
        contrast=contrast(1, "/", 0, timeline, timeline) if timeline is not None else None,
        proxied=None,
        commits=[],
        recording=RecordingFacts(),
        notes=[],
    )


@settings(max_examples=30, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=6))
def test_no_event_can_break_a_face(events):
    made = account(events)
    assert made.timeline is not None
    assert made.timeline.took_ns >= 0
    assert Account.model_validate_json(made.model_dump_json()).timeline is not None
    assert len(condensed(folded(made.timeline.rows) * 9, 10)) <= 10
    assert not seen(incident_page(made)).tags & {"script", "img"}
    parsed(spans_of(made))
    json.dumps(entries(har_of(made)))


@settings(max_examples=25, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=6))
def test_no_event_can_break_a_terminal(events):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        show_account(Terminal(), account(events), everything=True)
    assert said.getvalue().startswith("incident 1 of pay")
    assert "\x1b" not in html.unescape(said.getvalue())

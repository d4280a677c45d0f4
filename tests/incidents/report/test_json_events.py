"""What was a list when it was recorded is one again."""

from __future__ import annotations

from relive.incidents.report.json_events import plain
from relive.recording.events import Event, EventKind


def test_tuples_become_lists_at_any_depth():
    event = Event(1, 2, 3, EventKind.QUERY, fields={"a": ({"b": (1, (2,))}, "x"), "c": 3})
    assert plain(event) == Event(1, 2, 3, EventKind.QUERY, fields={"a": [{"b": [1, [2]]}, "x"], "c": 3})

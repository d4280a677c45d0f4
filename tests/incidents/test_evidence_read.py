"""Events that lie beside an incident come back as they were, and what is none is refused."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relive.errors import RecordingCorrupt
from relive.incidents.evidence import Evidence, events_of, store_evidence
from relive.recording.events import Event, EventKind

EVENT = Event(9, 1, 2, EventKind.QUERY, 0, 3, b"\x00rows", {"own_seq": 4, "asked": {"statement": "ü"}})
LINE = {"seq": 1, "mono_ns": 2, "wall_ns": 3, "kind": "clock", "request": 0, "fields": {}}


def test_what_was_kept_is_read_again(tmp_path):
    store_evidence(tmp_path, 7, Evidence(None, [EVENT, EVENT]))
    assert events_of(tmp_path, 7) == [EVENT, EVENT]
    assert events_of(tmp_path, 8) == []


def test_kinds_of_a_later_relive_are_passed_over(tmp_path):
    lines = [LINE, LINE | {"kind": "telepathy"}]
    (tmp_path / "1.events.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert [event.kind for event in events_of(tmp_path, 1)] == [EventKind.CLOCK]


@pytest.mark.parametrize(
    "parts",
    [
        {"seq": -1},
        {"seq": True},
        {"mono_ns": 1 << 63},
        {"request": None},
        {"kind": 3},
        {"fields": []},
        {"fields": {"pid": "7"}},
        {"fields": {"own_seq": True}},
        {"fields": {"lane": None}},
        {"data": "%"},
    ],
)
def test_a_line_that_is_no_event_is_refused(tmp_path, parts):
    (tmp_path / "1.events.jsonl").write_text(json.dumps(LINE | parts))
    with pytest.raises(RecordingCorrupt, match="cannot be read"):
        events_of(tmp_path, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.binary(max_size=60) | st.just(b"[" * 100_000))
def test_no_bytes_can_break_it_in_another_way(tmp_path, data):
    (tmp_path / "1.events.jsonl").write_bytes(data)
    with contextlib.suppress(RecordingCorrupt):
        assert all(isinstance(event, Event) for event in events_of(tmp_path, 1))

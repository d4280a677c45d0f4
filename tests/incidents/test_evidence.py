"""What lies beside an incident."""

from __future__ import annotations

import base64
import json

import pytest

from model.test_failure import changed
from relive.errors import RecordingCorrupt
from relive.incidents.evidence import (
    Evidence,
    beginning_of,
    bodies_of,
    events_of,
    launch_of,
    package_of,
    request_of,
    store_evidence,
)
from relive.incidents.incidents import Incidents
from relive.model.incident import FailureKind, Sighting
from relive.model.launch import Launch
from relive.recording.events import Event, EventKind

EVENTS = [
    Event(4, 10, 20, EventKind.HANDLING_STARTED, 0, 7, b"", {"pid": 1, "peer": ("127.0.0.1", 4)}),
    Event(5, 11, 21, EventKind.HANDLING_BODY, 0, 7, b"\x00\xff", {"pid": 1}),
]


@pytest.fixture
def incidents(tmp_path):
    found = Incidents(tmp_path)
    sighting = Sighting(kind=FailureKind.EXCEPTION, fingerprint="exception ab", summary="s", seen_wall_ns=1)
    found.add("pay", "L", sighting, before=None, at=None, log_end=None, log_tail=[])
    return found


def test_package_and_events_are_kept_and_are_no_incidents_themselves(incidents, tmp_path):
    store_evidence(tmp_path, 1, Evidence(changed(), EVENTS))
    assert package_of(tmp_path, 1).text == "1386"
    first, second = map(json.loads, (tmp_path / "1.events.jsonl").read_text().splitlines())
    assert first == {
        "seq": 4,
        "mono_ns": 10,
        "wall_ns": 20,
        "kind": "handling-started",
        "request": 7,
        "fields": {"pid": 1, "peer": ["127.0.0.1", 4]},
    }
    assert base64.b64decode(second["data"]) == b"\x00\xff"
    assert [one.number for one in incidents.list()] == [1]


def test_what_a_fresh_process_needs_is_kept_for_its_owner_only(incidents, tmp_path):
    bodies = tmp_path / "bodies"
    bodies.mkdir()
    (bodies / "1-1.body").write_bytes(b"long")
    named = Event(6, 12, 22, EventKind.HANDLING_BODY, 0, 7, b"", {"file": "1-1.body"})
    others = [
        Event(7, 1, 1, EventKind.NOTE, 0, 7, b"", {"file": name}) for name in ("../1.json", "1-2.body", 3)
    ]
    launch = Launch(command=["\udcff", "a"], directory="/srv", user="shop", address=("::1", 80))
    begun = [Event(1, 1, 1, EventKind.PROCESS_STARTED, 0, 0, b"", {"pid": 1})]
    evidence = Evidence(
        changed(), [*EVENTS, named, *others], begun, launch, b"GET / HTTP/1.1\r\n\r\n", bodies
    )
    store_evidence(tmp_path, 1, evidence)
    assert (launch_of(tmp_path, 1), beginning_of(tmp_path, 1)) == (launch, begun)
    assert request_of(tmp_path, 1) == b"GET / HTTP/1.1\r\n\r\n"
    assert [path.name for path in bodies_of(tmp_path, 1).iterdir()] == ["1-1.body"]
    assert len(events_of(tmp_path, 1)) == 6
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("1.*")} == {0} | {
        (tmp_path / "1.json").stat().st_mode & 0o077
    }
    assert [one.number for one in incidents.list()] == [1]


def test_an_incident_without_them_has_none_and_damaged_ones_are_said(tmp_path):
    assert (launch_of(tmp_path, 1), beginning_of(tmp_path, 1), request_of(tmp_path, 1)) == (None, [], None)
    for text in (
        "{}",
        '{"command": [], "directory": "/"}',
        '{"command": ["a\\\\q"], "directory": 1}',
        "[" * 9999,
    ):
        (tmp_path / "1.launch.json").write_text(text)
        with pytest.raises(RecordingCorrupt):
            launch_of(tmp_path, 1)


def test_the_first_package_stays(incidents, tmp_path):
    store_evidence(tmp_path, 1, Evidence(changed(), EVENTS))
    store_evidence(tmp_path, 1, Evidence(changed(text="later"), []))
    assert package_of(tmp_path, 1).text == "1386"


def test_an_incident_without_a_package_has_none_and_a_damaged_one_is_said(tmp_path):
    assert package_of(tmp_path, 1) is None
    (tmp_path / "1.package.json").write_bytes(b"{}")
    with pytest.raises(RecordingCorrupt):
        package_of(tmp_path, 1)

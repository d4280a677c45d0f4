"""What is known of an incident is gathered from wherever it lies; what is missing or damaged does not hide the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relive.config import Settings
from relive.incidents.incidents import Incidents
from relive.incidents.report.detail import Account, account_of, exception_of
from relive.model.incident import FailureKind
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter
from relive.store import Store
from store.builders import commit

from .builders import (
    OWN_REQUEST,
    PID,
    Events,
    add_incident,
    keep_beside,
    package_json,
    paying,
    record_by_proxy,
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    home = tmp_path / "home"
    home.mkdir()
    return Settings(home=home)


def record_inside(home: Path, events: list) -> None:
    directory = home / "capsules" / "pay" / "L1" / "inside"
    directory.mkdir(parents=True)
    writer = RecordingWriter(directory)
    for event in events:
        writer.append(
            event.kind, 0, event.request, event.data, event.fields, at=(event.mono_ns, event.wall_ns)
        )
    writer.close()


def account(settings: Settings, number: int = 1) -> Account:
    return account_of(settings, Incidents(settings.incidents).get(number))


def test_all_that_lies_beside_the_incident_and_the_proxys_recording_is_put_together(settings):
    add_incident(settings.home)
    keep_beside(settings.home, 1, package_json(), paying())
    record_by_proxy(settings.home)
    found = account(settings)
    assert found.package is not None
    assert found.proxied is not None
    assert found.proxied.number == 7
    assert found.timeline is not None
    assert {row.source for row in found.timeline.rows} == {"proxy", "inside"}
    assert EventKind.COMMIT_TAKEN in [row.kind for row in found.timeline.rows]
    facts = found.recording
    assert (facts.request, facts.pid, facts.own_request, facts.events) == (7, PID, OWN_REQUEST, len(paying()))
    assert found.notes == ["left out: 2 locals of pay"]


def test_the_proxys_request_is_found_by_what_the_handler_was_told(settings):
    """The recorder inside numbers requests on its own; method, path, time and port tell which of the proxy's it was."""
    add_incident(settings.home, kind=FailureKind.EXIT, request=OWN_REQUEST)
    keep_beside(settings.home, 1, package_json(), paying())
    record_by_proxy(settings.home)
    assert account(settings).recording.request == 7


def test_without_events_beside_it_the_recording_inside_is_searched(settings):
    add_incident(settings.home)
    record_by_proxy(settings.home)
    other = Events(request=4)
    other.add(EventKind.HANDLING_STARTED, 0.5, method="POST", target="/pay", peer=["127.0.0.1", 999])
    other.add(EventKind.LOG_RECORD, 3, text="of another request", level="INFO")
    elsewhere = Events(request=OWN_REQUEST, pid=PID + 1)
    elsewhere.add(EventKind.LOG_RECORD, 3, text="of another process", level="INFO")
    events = sorted([*paying(), *other.made, *elsewhere.made], key=lambda event: event.mono_ns)
    record_inside(settings.home, events)
    found = account(settings)
    assert found.timeline is not None
    assert found.recording.events == len(paying())
    assert found.package is not None
    assert found.timeline.rows[1].result == "500 Internal Server Error"
    assert not any("another" in row.what for row in found.timeline.rows)


def test_only_a_package_finds_its_request_in_the_recording_inside(settings):
    add_incident(settings.home, request=None)
    (settings.incidents / "1.package.json").write_bytes(package_json())
    record_inside(settings.home, paying())
    found = account(settings)
    assert found.recording.events == len([event for event in paying() if event.request])
    assert found.proxied is None


def test_with_nothing_but_the_incident_there_is_no_timeline(settings):
    add_incident(settings.home)
    found = account(settings)
    assert (found.timeline, found.package, found.proxied, found.notes) == (None, None, None, [])


def test_commits_tell_when_they_were_taken_and_which_are_gone(settings):
    store = Store(settings.store)
    before = commit(store)
    store.close()
    incidents = Incidents(settings.incidents)
    made = add_incident(settings.home)
    incidents.save(made.model_copy(update={"before": before.id, "at": "f" * 64}))
    first, second = account(settings).commits
    assert (first.role, first.id, first.taken_wall_ns) == ("before", before.id, before.taken_wall_ns)
    assert (second.role, second.taken_wall_ns) == ("at", None)


def test_commits_in_a_timeline_have_the_id_that_commands_take(settings):
    add_incident(settings.home)
    keep_beside(settings.home, 1, package_json(), paying())
    record_by_proxy(settings.home)

    def told() -> list[str]:
        timeline = account(settings).timeline
        assert timeline is not None
        return [row.what for row in timeline.rows if row.label == "commit"]

    assert told() == ["commit, not kept"]
    store = Store(settings.store)
    taken = commit(store, capture="c0ffee" * 10)
    store.close()
    assert told() == [f"commit {taken.id[:10]}"]


def test_a_hostile_package_is_noted_and_the_rest_is_told(settings):
    add_incident(settings.home)
    keep_beside(settings.home, 1, b'{"version": 1, "type": {"__reduce__": "os.system"}}', paying())
    found = account(settings)
    assert found.package is not None  # the one in the failure's event
    assert found.timeline is not None
    assert found.notes[0].startswith("an error package cannot be read")


def test_hostile_events_are_noted_and_the_package_is_told(settings):
    add_incident(settings.home)
    keep_beside(settings.home, 1, package_json(), [])
    (settings.incidents / "1.events.jsonl").write_text('{"seq": "x"}\n')
    found = account(settings)
    assert found.package is not None
    assert len(found.notes) == 2


def test_a_damaged_recording_is_noted(settings):
    add_incident(settings.home)
    record_by_proxy(settings.home)
    (segment,) = (settings.capsules / "pay" / "L1" / "recording").glob("*.events")
    raw = segment.read_bytes()
    segment.write_bytes(raw[:200] + b"\xff" * 40 + raw[240:])
    found = account(settings)
    assert found.proxied is None
    assert len(found.notes) == 1


def test_configured_secrets_are_masked(settings):
    add_incident(settings.home)
    record_by_proxy(settings.home)
    found = account(settings.model_copy(update={"secret_names": ["host"]}))
    assert found.proxied is not None
    assert dict(found.proxied.headers)["host"] == "<secret>"


def test_the_exception_in_short_comes_from_the_package_or_from_what_was_printed(settings):
    incident = add_incident(settings.home)
    assert exception_of(settings, incident) == ""
    printed = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "ValueError: printed"]
    assert exception_of(settings, incident.model_copy(update={"log_tail": printed})) == "ValueError: printed"
    keep_beside(settings.home, 1, package_json(), [])
    assert exception_of(settings, incident) == "KeyError: 'EUR'"
    keep_beside(settings.home, 1, json.dumps({}).encode(), [])
    assert exception_of(settings, incident) == ""


def test_secrets_in_what_the_incident_itself_holds_are_masked(settings):
    """The agent wrote down the target of the request, and lines that the service printed."""
    summary = "request 7 (POST /pay?token=hunter2222) was answered with status 500"
    incident = add_incident(settings.home, summary=summary)
    incident = incident.model_copy(
        update={"log_tail": ["POST /pay?token=hunter2222 HTTP/1.1", "or hunter2222"]}
    )
    found = account_of(settings, incident)
    assert (
        found.incident.sighting.summary == "request 7 (POST /pay?token=<secret>) was answered with status 500"
    )
    assert "hunter2222" not in found.model_dump_json()


def test_of_a_failure_that_was_logged_as_well_the_one_that_escaped_is_told(settings):
    add_incident(settings.home)
    events = Events()
    events.add(EventKind.FAILURE, 1, where="handler", data=package_json(text="escaped"))
    events.add(EventKind.FAILURE, 2, where="log", data=package_json(text="logged"))
    keep_beside(settings.home, 1, None, events.made)
    package = account(settings).package
    assert package is not None
    assert package.text == "escaped"


def test_what_the_request_did_after_the_incident_was_written_down_is_taken_from_the_recording(settings):
    """The agent keeps what there is when it hears of the exception; the handler's end may come later."""
    add_incident(settings.home)
    events = paying()
    later = Events(request=OWN_REQUEST)
    later.add(EventKind.LOG_RECORD, 9000, text="of another day", level="INFO")
    record_inside(settings.home, [*events, *later.made])
    recorded = list(Recording(settings.home / "capsules" / "pay" / "L1" / "inside").events())
    kept = [event for event in recorded if event.kind is not EventKind.HANDLING_ENDED][: len(events) - 1]
    keep_beside(settings.home, 1, package_json(), kept)
    timeline = account(settings).timeline
    assert timeline is not None
    assert timeline.rows[0].result == "500 Internal Server Error"
    assert not any("another day" in row.what for row in timeline.rows)

"""What a service did for one request: by the events of its handler, else by the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relive.incidents.report.handled import handled
from relive.recording.events import Event, EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

from .builders import MS, OWN_REQUEST, Events, paying, record_by_proxy


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    record_by_proxy(tmp_path)
    return Exchanges(Recording(tmp_path / "capsules" / "pay" / "L1" / "recording")).by_number(7)


def recorded(directory: Path, events: list[Event]) -> Recording:
    directory.mkdir()
    writer = RecordingWriter(directory)
    for event in events:
        writer.append(
            event.kind, 0, event.request, event.data, event.fields, at=(event.mono_ns, event.wall_ns)
        )
    writer.close()
    return Recording(directory)


def test_a_handler_that_is_known_has_its_own_events(tmp_path, exchange):
    other = Events(request=4, pid=99)
    other.add(EventKind.LOG_RECORD, 3, text="of another", level="INFO")
    events = sorted([*paying(), *other.made], key=lambda event: event.mono_ns)
    found = handled(recorded(tmp_path / "inside", events), exchange)
    assert not found.by_time
    assert len(found.events) == len(paying())
    assert {event.request for event in found.events} == {0, OWN_REQUEST}


def test_of_a_server_that_tells_no_handler_what_was_done_meanwhile_is_taken(tmp_path, exchange):
    plain = Events(request=0)
    plain.add(
        EventKind.HTTP_CALL, -5, ns=MS, asked={"method": "GET", "url": "http://r/0"}, answer={"status": 200}
    )
    plain.add(
        EventKind.HTTP_CALL, 9, ns=MS, asked={"method": "GET", "url": "http://r/1"}, answer={"status": 404}
    )
    plain.add(EventKind.CLOCK, 10, source="time.time", value=1.0)
    plain.add(EventKind.LOG_RECORD, 12, text="no rate", level="ERROR")
    plain.add(EventKind.LOG_RECORD, 60, text="later", level="INFO")
    found = handled(recorded(tmp_path / "inside", plain.made), exchange)
    assert found.by_time
    assert [(event.kind, event.request) for event in found.events] == [
        (EventKind.HTTP_CALL, 7),
        (EventKind.LOG_RECORD, 7),
    ]


@pytest.mark.parametrize("has_handler", [True, False])
def test_of_more_events_than_are_told_those_at_the_end_stay(tmp_path, exchange, monkeypatch, has_handler):
    """GIVEN a request that asks for more than can be shown, and then fails; THEN the failure is shown."""
    monkeypatch.setattr("relive.incidents.report.handled.MOST_EVENTS", 50)
    monkeypatch.setattr("relive.incidents.report.handled._BY_TIME_MOST", 50)
    made = Events(request=OWN_REQUEST if has_handler else 0)
    if has_handler:
        made.add(EventKind.HANDLING_STARTED, 1, server="asgi", method="POST", target="/pay", headers=[])
    for number in range(200):
        made.add(EventKind.LOG_RECORD, 2 + number / 100, text=str(number), level="INFO")
    made.add(EventKind.FAILURE, 5, type="KeyError", text="'x'")
    found = handled(recorded(tmp_path / "inside", made.made), exchange)
    assert found.by_time is not has_handler
    assert len(found.events) == 50 and found.left_out == len(made.made) - 50
    assert found.events[-1].kind is EventKind.FAILURE
    assert [event.mono_ns for event in found.events] == sorted(event.mono_ns for event in found.events)


def test_of_a_request_without_an_end_those_at_the_begin_stay(tmp_path, exchange, monkeypatch):
    """A hang: what comes long after it is of others."""
    monkeypatch.setattr("relive.incidents.report.handled._BY_TIME_MOST", 50)
    made = Events(request=0)
    for number in range(200):
        made.add(EventKind.LOG_RECORD, 2 + number / 100, text=str(number), level="INFO")
    found = handled(recorded(tmp_path / "inside", made.made), replace(exchange, ended_mono_ns=None))
    assert [event.fields["text"] for event in found.events] == [str(number) for number in range(50)]

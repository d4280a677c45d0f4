"""Which recorded request is the one that failed inside."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.agent.failures.request_matching import failed_meanwhile, find_request, served_at
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

HEAD = b"POST /pay?id=%d HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Requests 1 and 3 one after the other on port 40001, 2 on port 40002, 4 of the same target as 2 on 40003."""
    writer = RecordingWriter(tmp_path / "recording", keep_bytes=1 << 20)
    started, ended = EventKind.REQUEST_STARTED, EventKind.ANSWER_ENDED
    for at, (kind, number, port, item) in enumerate(
        [
            (started, 1, 40001, 1),
            (started, 2, 40002, 2),
            (ended, 1, 40001, 1),
            (started, 3, 40001, 3),
            (started, 4, 40003, 2),
        ]
    ):
        fields = {"local_port": port, "log_offsets": {"/log": 10 * number}} if kind is started else {}
        data = HEAD % item if kind is started else b""
        writer.append(kind, port, number, data, fields, at=(100 + at, 100 + at))
    writer.close()
    return Recording(tmp_path / "recording")


def failure(at: int, request: int = 5, **fields: object) -> Event:
    return Event(1, at, at, EventKind.FAILURE, 0, request, b"", {"method": "POST", **fields})


def test_it_is_the_last_request_on_that_port_before_the_failure(recording):
    found = find_request(recording, failure(103, peer=("127.0.0.1", 40001), target="/pay?id=3"))
    assert (found["request"], found["method"], found["target"]) == (3, "POST", "/pay?id=3")
    assert found["began_wall_ns"] == 103
    assert found["log_offsets"] == {"/log": 30}
    assert find_request(recording, failure(101, peer=("127.0.0.1", 40001)))["request"] == 1


def test_it_may_be_recorded_behind_what_came_later(tmp_path):
    """What waited for a commit's place is."""
    writer = RecordingWriter(tmp_path / "late", keep_bytes=1 << 20)
    writer.append(EventKind.ANSWER_ENDED, 1, 1, b"", {}, at=(110, 110))
    writer.append(EventKind.REQUEST_STARTED, 2, 2, HEAD % 2, {"local_port": 40002}, at=(100, 100))
    writer.close()
    found = find_request(Recording(tmp_path / "late"), failure(105, peer=("127.0.0.1", 40002)))
    assert (found["request"], found["began_wall_ns"]) == (2, 100)


def test_an_exception_after_the_answer_still_belongs_to_it(recording):
    assert find_request(recording, failure(102, peer=("127.0.0.1", 40001)))["request"] == 1


def test_without_a_port_it_is_the_one_open_request_of_that_target(recording):
    assert find_request(recording, failure(103, peer=(), target="/pay?id=3"))["request"] == 3
    assert find_request(recording, failure(103, peer=(), target="/pay?id=1")) == {}, "that one had ended"
    assert find_request(recording, failure(104, peer=(), target="/pay?id=2")) == {}, "there are two"


def answered(directory: Path, *statuses: int) -> Recording:
    """Requests from 1 on that all began at 100, and were answered one after the other; 0: not yet."""
    writer = RecordingWriter(directory / "answered", keep_bytes=1 << 20)
    for number in range(1, len(statuses) + 1):
        writer.append(EventKind.REQUEST_STARTED, number, number, HEAD % number, {}, at=(100, 100))
    for number, status in enumerate(statuses, 1):
        if status:
            head = b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % status
            writer.append(EventKind.ANSWER_STARTED, number, number, head, {"status": status}, at=(110, 110))
            writer.append(EventKind.ANSWER_ENDED, number, number, b"", {}, at=(110 + number, 110 + number))
    writer.close()
    return Recording(directory / "answered")


@pytest.mark.parametrize(
    ("statuses", "taken", "expected"),
    [
        ((200, 500), (), (2, False)),
        ((200, 200), (), (None, False)),
        ((200, 0), (), (None, True)),
        ((500,), (1,), (None, False)),
        ((500, 500), (1,), (2, False)),
        ((), (), (None, False)),
    ],
)
def test_of_those_open_meanwhile_it_is_one_that_failed(tmp_path, statuses, taken, expected):
    found, may_come = failed_meanwhile(answered(tmp_path, *statuses), 105, taken)
    assert (found.get("request"), may_come) == expected
    if found:
        assert found["ended_mono_ns"] == 110 + found["request"]


def test_what_had_ended_or_began_later_is_not_it(tmp_path):
    recording = answered(tmp_path, 500)
    assert failed_meanwhile(recording, 99, ()) == ({}, False)
    assert failed_meanwhile(recording, 120, ()) == ({}, False)


def test_outside_of_requests_and_without_a_recording_there_is_none(recording, tmp_path):
    assert find_request(recording, failure(103, request=0, peer=("127.0.0.1", 40001))) == {}
    assert find_request(Recording(tmp_path / "nowhere"), failure(103)) == {}


@pytest.mark.parametrize(
    ("size", "served", "waiting"),
    [(5, set(), False), (15, {1}, False), (25, {2}, True), (45, {2, 3, 4}, True)],
)
def test_what_was_written_is_of_the_requests_that_were_being_served(tmp_path, size, served, waiting):
    writer = RecordingWriter(tmp_path / "recording", keep_bytes=1 << 20)
    for number in (1, 2, 3, 4):
        fields = {"log_offsets": {"/log": 10 * number}}
        writer.append(EventKind.REQUEST_STARTED, number, number, HEAD % number, fields, at=(100, 100))
        if number == 1:
            head = b"HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n"
            writer.append(EventKind.ANSWER_STARTED, number, number, head, {"status": 200}, at=(110, 110))
            fields = {"log_offsets": {"/log": 20}}
            writer.append(EventKind.ANSWER_ENDED, number, number, b"", fields, at=(111, 111))
    writer.close()
    assert served_at(Recording(tmp_path / "recording"), "/log", size) == (served, waiting)


def test_a_websocket_fails_after_the_last_event_not_after_its_beginning(recording: Recording) -> None:
    found = find_request(recording, failure(110, method="WEBSOCKET", peer=["127.0.0.1", 40002]))
    assert (found["request"], found["sequence"], found["began_wall_ns"]) == (2, 5, 104)

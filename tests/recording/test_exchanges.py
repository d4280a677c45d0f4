"""Exchanges from events, without any proxy."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.errors import RecordingError, RequestTruncated, RequestUnknown
from relive.recording.events import EventKind
from relive.recording.exchanges import ExchangeEnd, Exchanges
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

K = EventKind


@pytest.fixture
def writer(tmp_path: Path) -> RecordingWriter:
    return RecordingWriter(tmp_path, segment_bytes=400)


def begin(writer: RecordingWriter, connection: int = 1) -> int:
    number = writer.next_request()
    writer.append(K.REQUEST_STARTED, connection, number, b"GET /%d HTTP/1.1\r\n\r\n" % number)
    writer.append(K.REQUEST_ENDED, connection, number, fields={"bytes": 0})
    writer.flush()
    return number


def finish(writer: RecordingWriter, number: int, connection: int = 1) -> int:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    writer.append(K.ANSWER_STARTED, connection, number, head, {"status": 200})
    writer.append(K.ANSWER_BODY, connection, number, b"ok")
    seq = writer.append(K.ANSWER_ENDED, connection, number, fields={"bytes": 2})
    writer.flush()
    return seq


def test_overlapping_requests_over_many_segments(writer: RecordingWriter, tmp_path: Path):
    """Begun in a range, open at a place, by number: all agree, wherever the segments end."""
    long = begin(writer)
    for _ in range(20):
        finish(writer, begin(writer))
    middle = writer.last_seq
    late = begin(writer)
    end = finish(writer, long)
    writer.close()
    found = Exchanges(Recording(tmp_path))
    assert len(Recording(tmp_path).segments()) > 5
    assert [e.number for e in found.open_at(middle)] == [long]
    assert [e.number for e in found.open_at(end - 1)] == [long, late]
    assert [e.number for e in found.begun_in(0, middle)] == list(range(1, 22))
    assert [e.number for e in found.begun_in(middle, end)] == [late]
    assert found.by_number(long).ended_seq == end
    assert found.by_number(7).target == "/7"
    assert found.by_number(7).answer_body() == b"ok"
    assert found.by_number(late).ended is ExchangeEnd.OPEN
    with pytest.raises(RequestUnknown, match="request 99"):
        found.by_number(99)


def test_what_was_open_when_the_recorder_died_is_lost(writer: RecordingWriter, tmp_path: Path):
    number = begin(writer)
    writer.append(K.RECORDER_STARTED)
    writer.close()
    assert Exchanges(Recording(tmp_path)).by_number(number).ended is ExchangeEnd.LOST


def test_events_lost_to_a_full_disk_are_not_taken_for_a_whole_request(
    writer: RecordingWriter, tmp_path: Path
):
    """GIVEN a body of which an event is missing THEN it is not sent again as if it were whole."""
    number = writer.next_request()
    writer.append(K.REQUEST_STARTED, 1, number, b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
    writer.append(K.NOTE, fields={"about": "disk", "text": "", "lost": 1})
    writer.append(K.REQUEST_ENDED, 1, number, fields={"bytes": 5})
    writer.close()
    exchange = Exchanges(Recording(tmp_path)).by_number(number)
    assert exchange.ended is ExchangeEnd.LOST
    with pytest.raises(RequestTruncated, match="5 bytes"):
        exchange.request_bytes()


def test_a_body_that_retention_dropped_says_so(writer: RecordingWriter, tmp_path: Path):
    number = begin(writer)
    finish(writer, number)
    writer.close()
    exchange = Exchanges(Recording(tmp_path)).by_number(number)
    for path in Recording(tmp_path).segments():
        path.unlink()
    with pytest.raises(RecordingError, match="no longer kept"):
        exchange.answer_body()

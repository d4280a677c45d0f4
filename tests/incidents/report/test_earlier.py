"""The last good request to the route is found, also in an earlier segment."""

from __future__ import annotations

from pathlib import Path

from relive.incidents.report.earlier import last_good, near_good_ones
from relive.incidents.report.shapes import is_near_route
from relive.recording.events import EventKind
from relive.recording.exchanges import Exchange, Exchanges
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter


def record(
    directory: Path, requests: list[tuple[str, int | None]], *, segment: int | None = None
) -> Recording:
    """Requests one after the other, each with its status; None: it never ended."""
    writer = RecordingWriter(directory, **({} if segment is None else {"segment_bytes": segment}))
    for number, (target, status) in enumerate(requests, 1):
        writer.last_request = number
        writer.append(
            EventKind.REQUEST_STARTED,
            number,
            number,
            f"GET {target} HTTP/1.1\r\n\r\n".encode(),
            {"log_offsets": {}},
        )
        writer.append(EventKind.REQUEST_ENDED, number, number, b"", {"bytes": 0})
        if status is not None:
            head = f"HTTP/1.1 {status} x\r\ncontent-length: 3\r\n\r\n".encode()
            writer.append(EventKind.ANSWER_STARTED, number, number, head, {"status": status})
            writer.append(EventKind.ANSWER_BODY, number, number, b"abc", {})
            writer.append(EventKind.ANSWER_ENDED, number, number, b"", {"bytes": 3, "log_offsets": {}})
        writer.flush()  # a segment is begun between two of these
    writer.close()
    return Recording(directory)


def found(recording: Recording, number: int) -> Exchange | None:
    return last_good(recording, Exchanges(recording).by_number(number))


def test_the_last_below_400_to_the_same_route(tmp_path):
    requests = [
        ("/p/1", 200),
        ("/p/2?x=1", 201),
        ("/other", 200),
        ("/p/3", 404),
        ("/p/4", 503),
        ("/p/5", None),
        ("/p/6", 500),
        ("/p/7", 200),
    ]
    recording = record(tmp_path, requests)
    good = found(recording, 7)
    assert good is not None
    assert (good.number, good.target, good.answer_body()) == (2, "/p/2?x=1", b"abc")


def test_without_any_there_is_none(tmp_path):
    recording = record(tmp_path, [("/other", 200), ("/p", 500), ("/p", 200)])
    assert found(recording, 2) is None


def test_earlier_segments_are_looked_through(tmp_path):
    recording = record(tmp_path, [("/p", 200), *[("/other", 200)] * 200, ("/p", 500)], segment=4096)
    assert len(recording.segments()) > 2
    good = found(recording, 202)
    assert good is not None
    assert good.number == 1


def test_the_last_good_one_of_each_near_route_is_found_in_all_segments_the_latest_first(tmp_path):
    early = [("/milk", 200), ("/honey", 200), ("/", 200), ("/price/milk", 200), ("/coffee", 404)]
    recording = record(
        tmp_path, [*early, *[("/health", 200)] * 200, ("/milk", 500), ("/tea", 500)], segment=4096
    )
    assert len(recording.segments()) > 2
    failed = Exchanges(recording).by_number(207)
    assert [one.target for one in near_good_ones(recording, failed)] == ["/health", "/honey", "/milk"]


def test_routes_are_near_that_differ_in_one_part_but_not_in_the_first_of_several():
    near = [("GET /tea", "GET /milk"), ("GET /price/tea", "GET /price/milk"), ("GET /a/b/c", "GET /a/x/c")]
    far = [
        ("GET /tea", "GET /"),
        ("GET /tea", "POST /milk"),
        ("GET /tea/1", "GET /milk/1"),
        ("GET /a/b", "GET /x/y"),
    ]
    assert all(is_near_route(*pair) for pair in near) and not any(is_near_route(*pair) for pair in far)

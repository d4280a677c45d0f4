"""Calls at the border as events like those from inside: those of the request's time, once, without secrets."""

from __future__ import annotations

from pathlib import Path

from relive.incidents.report.egress import InprocessCalls, egress_events
from relive.incidents.report.masking import Mask
from relive.incidents.report.timeline import make_timeline
from relive.protocols.call import Call, CallEnd
from relive.recording.events import Event, EventKind
from relive.recording.writer import RecordingWriter

SECOND, MS = 1_000_000_000, 1_000_000
TO = ("10.0.0.5", 80)
ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: db\r\nAuthorization: Bearer of-the-realm\r\n\r\n".encode()


def record(directory: Path, *said: tuple[int, EventKind, int, bytes, dict[str, object]]) -> None:
    """(second, kind, connection, data, fields)."""
    writer = RecordingWriter(directory)
    for second, kind, connection, data, fields in said:
        writer.append(kind, connection, 0, data, fields, (second * SECOND, (1000 + second) * SECOND))
    writer.close()


def opened(
    second: int, connection: int, **fields: object
) -> tuple[int, EventKind, int, bytes, dict[str, object]]:
    origin = ("10.0.0.1", connection)
    return second, EventKind.DIALOGUE_OPENED, connection, b"", {"to": TO, "origin": origin, **fields}


def up(second: int, data: bytes, at: int = 0) -> tuple[int, EventKind, int, bytes, dict[str, object]]:
    return second, EventKind.DIALOGUE_UP, 1, data, {"at": at}


def down(second: int, data: bytes, at: int = 0) -> tuple[int, EventKind, int, bytes, dict[str, object]]:
    return second, EventKind.DIALOGUE_DOWN, 1, data, {"at": at}


def events(directory: Path, inside: list[Event] | None = None) -> tuple[list[Event], list[str]]:
    return egress_events(directory, 10 * SECOND, 20 * SECOND, inside or [], Mask())


def test_nothing_was_recorded(tmp_path: Path) -> None:
    assert events(tmp_path / "egress") == ([], [])


def test_calls_of_its_time_are_told_like_those_from_inside(tmp_path: Path) -> None:
    """GIVEN a connection with a call before the request, one in its time, and one after
    WHEN they are told
    THEN the one is, with its answer, its body and how long it took, and a timeline has a line for it.
    """
    size, answered = len(request("/a")), len(ANSWER)
    record(
        tmp_path,
        *(opened(1, 1), up(2, request("/a")), down(3, ANSWER)),
        *(up(12, request("/b"), size), down(14, ANSWER, answered)),
        *(up(21, request("/c"), 2 * size), down(22, ANSWER, 2 * answered)),
    )
    (event,), notes = events(tmp_path)
    assert (event.kind, event.mono_ns, event.data) == (EventKind.HTTP_CALL, 14 * SECOND, b"no")
    assert event.fields["asked"]["url"] == "http://db/b" and event.fields["answer"]["status"] == 503
    assert "of-the-realm" not in str(event.fields) and notes == []
    timeline = make_timeline([_handling()], egress=[event])
    assert timeline is not None
    row = timeline.rows[-1]
    assert (row.source, row.what, row.result, row.failed) == (
        "egress",
        "GET http://db/b",
        "503 Service Unavailable",
        True,
    )
    assert (row.at_ns, row.took_ns) == (2 * SECOND, 2 * SECOND)


def _handling() -> Event:
    return Event(1, 10 * SECOND, 1010 * SECOND, EventKind.HANDLING_STARTED, request=1, fields={"pid": 1})


def test_what_was_told_from_inside_is_not_told_again(tmp_path: Path) -> None:
    record(tmp_path, opened(1, 1), up(12, request("/b")), down(14, ANSWER))
    inside = Event(7, 14 * SECOND, 0, EventKind.HTTP_CALL, request=1, fields={"ns": 2 * SECOND})
    other = Event(7, 14 * SECOND, 0, EventKind.QUERY, request=1, fields={"ns": 2 * SECOND})
    assert events(tmp_path, [inside])[0] == []
    assert len(events(tmp_path, [other])[0]) == 1


def test_a_connection_that_could_not_be_made_is_told(tmp_path: Path) -> None:
    record(tmp_path, opened(11, 1, error="ECONNREFUSED", connect_ns=5), opened(1, 2, error="ETIMEDOUT"))
    (event,), _ = events(tmp_path)
    timeline = make_timeline([_handling()], egress=[event])
    assert timeline is not None
    assert (timeline.rows[-1].what, timeline.rows[-1].result) == ("connect 10.0.0.5:80", "ECONNREFUSED")


def test_a_call_without_an_answer_has_failed(tmp_path: Path) -> None:
    ended = (13, EventKind.DIALOGUE_ENDED, 1, b"", {"way": "down", "how": "reset", "bytes": 0, "cut": 0})
    record(tmp_path, opened(1, 1), up(12, request("/b")), ended)
    (event,), _ = events(tmp_path)
    assert "answer" not in event.fields and "reset" in event.fields["error"]["text"]
    record(tmp_path / "open", opened(1, 1), up(12, request("/b")))
    (event,), _ = events(tmp_path / "open")
    assert event.fields["error"]["text"] == "no answer was recorded"


def test_damage_is_told(tmp_path: Path) -> None:
    record(tmp_path, opened(1, 1), (12, EventKind.DIALOGUE_UP, 1, b"without a place", {}))
    assert events(tmp_path)[1][0].startswith("the recording of the border: event 2")


def test_a_call_whose_answer_took_its_time_after_the_head_is_told_once() -> None:
    """From inside it is told when its body was read: 30 ms after the head, which came 10 ms after it was asked."""
    fields = {"ns": 10 * MS, "body_ns": 30 * MS}
    known = InprocessCalls([Event(1, 100 * MS, 0, EventKind.HTTP_CALL, fields=fields)])
    ends = CallEnd.ANSWERED, 1, 0, ("127.0.0.1", 80)
    asked = [
        Call(EventKind.HTTP_CALL, {}, None, *ends, at * MS, None, (0, 1), (0, 1)) for at in (50, 60, 103)
    ]
    assert [known.covers(call) for call in asked] == [False, True, False]

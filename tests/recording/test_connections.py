"""Conversations without HTTP/1 from events, without any recorder."""

from __future__ import annotations

from pathlib import Path

from relive.recording.connections import Connections, TurnKind, connections_in
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

K = EventKind


def found_in(directory: Path, after: int = 0, settled: int = 0) -> Connections:
    return connections_in(Recording(directory), after, 1 << 60, settled=settled)


def told(found: Connections) -> list[tuple[int, TurnKind, bytes, int]]:
    return [(one.connection, one.kind, found.bytes_of(one), one.after) for one in found.turns]


def test_turns_keep_their_order_beside_all_that_was_said_before(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path, segment_bytes=200)
    for number in (1, 2):
        writer.append(K.CONNECTION_OPENED, number, fields={"local_port": 4000 + number})
    writer.append(K.STREAM_TO_SERVICE, 1, 0, b"one")
    writer.append(K.STREAM_TO_CLIENT, 1, 0, b"first")
    writer.append(K.STREAM_TO_SERVICE, 2, 0, b"two")
    seen = writer.append(K.STREAM_TO_CLIENT, 2, 0, b"sec", {"cut": 3})
    writer.append(K.STREAM_TO_SERVICE, 1, 0, fields={"ended": True})
    writer.append(K.STREAM_TO_CLIENT, 1, 0, b"last")
    writer.append(K.CONNECTION_CLOSED, 1, fields={"unframed": True})
    writer.close()

    found = found_in(tmp_path)
    assert told(found) == [
        (1, TurnKind.OPENED, b"one", 0),
        (1, TurnKind.SENT, b"one", 0),
        (2, TurnKind.OPENED, b"two", 1),
        (2, TurnKind.SENT, b"two", 1),
        (1, TurnKind.ENDED, b"", 2),
        (1, TurnKind.CLOSED, b"", 3),
    ]
    assert [(one.connection, one.total, one.cut) for one in found.said] == [(1, 5, 0), (2, 6, 3), (1, 9, 0)]
    assert [one.local_port for one in found.conversations.values()] == [4001, 4002]
    assert [one.is_http for one in found.closings] == [False]

    # One alone waits for what was said on it, not for what was said elsewhere.
    second = found.of_connection(2)
    assert told(second) == [(2, TurnKind.OPENED, b"two", 0), (2, TurnKind.SENT, b"two", 0)]
    assert [one.connection for one in second.said] == [2] and set(second.conversations) == {2}
    assert [after for *_, after in told(found.of_connection(1))] == [0, 0, 1, 2]

    # From a commit before whose place the second had said its word: of what the first says, as before.
    later = found_in(tmp_path, after=seen - 1, settled=seen)
    assert told(later) == [(1, TurnKind.ENDED, b"", 0), (1, TurnKind.CLOSED, b"", 1)]
    assert [(one.connection, one.total) for one in later.said] == [(1, 4)]
    assert set(later.conversations) == {1, 2}


def test_a_message_is_left_out_with_its_answer_and_nobody_waits_for_that(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    for number in (1, 2):
        writer.append(K.CONNECTION_OPENED, number, fields={"local_port": 4000 + number})
    writer.append(K.STREAM_TO_CLIENT, 1, 0, b"hello")
    writer.append(K.STREAM_TO_SERVICE, 1, 0, b"o")
    first = writer.last_seq
    writer.append(K.STREAM_TO_SERVICE, 1, 0, b"ne")
    writer.append(K.STREAM_TO_SERVICE, 2, 0, b"other")
    other = writer.last_seq
    writer.append(K.STREAM_TO_CLIENT, 1, 0, b"fir", {"cut": 2})
    writer.append(K.STREAM_TO_CLIENT, 1, 0, b"st")
    writer.append(K.STREAM_TO_CLIENT, 2, 0, b"its")
    writer.append(K.STREAM_TO_SERVICE, 1, 0, b"two")
    second = writer.last_seq
    writer.append(K.STREAM_TO_CLIENT, 1, 0, b"second")
    writer.append(K.STREAM_TO_SERVICE, 1, 0, b"three")
    third = writer.last_seq
    writer.close()

    found = found_in(tmp_path)
    assert [
        (one.number, one.connection, len(one.turns), [found.bytes_of(said) for said in one.said])
        for one in found.messages()
    ] == [
        (first, 1, 2, [b"fir", b"st"]),
        (other, 2, 1, [b"its"]),
        (second, 1, 1, [b"second"]),
        (third, 1, 1, []),
    ]
    left = found.without([first])
    assert [turn for turn in told(left) if turn[1] is TurnKind.SENT] == [
        (2, TurnKind.SENT, b"other", 1),
        (1, TurnKind.SENT, b"two", 2),
        (1, TurnKind.SENT, b"three", 3),
    ]
    assert [(one.connection, found.bytes_of(one), one.total) for one in left.said] == [
        (1, b"hello", 5),
        (2, b"its", 3),
        (1, b"second", 11),
    ]
    assert left.without([other, second, third]).messages() == []
    assert found.without([]) == found


def test_what_follows_an_upgrade_is_of_its_request(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    upgrade = writer.append(K.REQUEST_STARTED, 1, 1, b"GET / HTTP/1.1\r\n\r\n", {"local_port": 4001})
    writer.append(K.STREAM_TO_SERVICE, 1, 1, b"a frame")
    writer.append(K.STREAM_TO_CLIENT, 1, 1, b"another")
    writer.append(K.REQUEST_STARTED, 2, 2, b"GET / HTTP/1.1\r\n\r\n", {"local_port": 4002})
    writer.append(K.STREAM_TO_CLIENT, 2, 0, b"what is no answer")
    for number in (1, 2):
        writer.append(K.CONNECTION_CLOSED, number)
    writer.append(K.CONNECTION_CLOSED, 3, fields={"unframed": True})  # of an older Relive
    writer.close()
    found = found_in(tmp_path)
    assert told(found) == [
        (1, TurnKind.OPENED, b"a frame", 0),
        (1, TurnKind.SENT, b"a frame", 0),
        (1, TurnKind.CLOSED, b"", 1),
    ]
    assert [(one.connection, one.request) for one in found.conversations.values()] == [(1, 1)]
    assert [one.is_http for one in found.closings] == [True, True, False]
    # The commit holds the connection as a stream already.
    (later,) = found_in(tmp_path, after=upgrade).conversations.values()
    assert (later.local_port, later.request) == (4001, None)


def test_what_came_before_a_time_is_left_out_and_not_waited_for(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    for data in (b"a", b"b"):
        writer.append(K.STREAM_TO_SERVICE, 1, 0, data)
        writer.append(K.STREAM_TO_CLIENT, 1, 0, data.upper())
    writer.close()
    found = found_in(tmp_path)
    between = found.between(found.said[0].mono_ns, found.turns[1].mono_ns)
    assert told(between) == [(1, TurnKind.SENT, b"b", 0)]
    assert between.said == []

"""What was last said before a failure, and whether more was."""

from __future__ import annotations

from pathlib import Path

from relive.incidents.report.masking import Mask
from relive.incidents.report.messages import last_messages
from relive.model.incident import FailureKind, Sighting
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

NOW = 10**18


def test_messages_say_of_their_connection_whether_its_beginning_is_missing(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    for number, fields in ((1, {}), (2, {"from_middle": True})):
        writer.append(EventKind.CONNECTION_OPENED, number, fields=fields, at=(1, NOW - 9))
    for number, data in ((1, b"a"), (2, b"b"), (1, b"c")):
        writer.append(EventKind.STREAM_TO_SERVICE, number, 0, data, at=(2, NOW - 5))
    writer.append(EventKind.STREAM_TO_CLIENT, 2, 0, b"later", at=(3, NOW + 1))
    writer.close()
    sighting = Sighting(kind=FailureKind.EXIT, fingerprint="x", summary="x", seen_wall_ns=NOW)
    found = last_messages(Recording(tmp_path), sighting, Mask())
    told = [(one.connection, one.body.text, one.by_client, one.before_ns, one.from_middle) for one in found]
    assert told == [(1, "a", True, 5, False), (2, "b", True, 5, True), (1, "c", True, 5, False)]

"""What was learned to be secret later is taken out of events that no replay is answered with."""

from __future__ import annotations

from pathlib import Path

from relive.recording.events import EventKind
from relive.recording.patching import overwrite
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

SECRET = b"correct-horse-17"


def test_texts_are_put_out_in_place_while_the_writer_goes_on(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    text = {"text": f"opened with {SECRET.decode()} today"}
    writer.append(EventKind.LOG_RECORD, fields=text)
    writer.append(EventKind.REDIS_COMMAND, fields={"answer": SECRET.decode()})
    writer.append(EventKind.HANDLING_BODY, data=b"<" + SECRET + b">")
    writer.append(EventKind.LOG_RECORD, fields={"text": "nothing"})
    writer.flush()
    assert overwrite(tmp_path, [SECRET]) == 2
    writer.append(EventKind.LOG_RECORD, fields=text)
    writer.close()
    found = list(Recording(tmp_path).events())
    stars = "*" * len(SECRET)
    assert found[0].fields["text"] == f"opened with {stars} today"
    assert found[1].fields["answer"] == SECRET.decode()
    assert found[2].data == f"<{stars}>".encode()
    assert [event.fields["text"] for event in found[3:5]] == ["nothing", text["text"]]
    assert overwrite(tmp_path, []) == 0


def test_what_is_no_whole_record_is_left_as_it_is(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path)
    writer.append(EventKind.LOG_RECORD, fields={"text": SECRET.decode()})
    writer.close()
    path = Recording(tmp_path).segments()[0]
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert overwrite(tmp_path, [SECRET]) == 0
    assert path.read_bytes() == whole[:-3]


def test_a_recording_that_is_not_there(tmp_path: Path) -> None:
    assert overwrite(tmp_path / "none", [SECRET]) == 0

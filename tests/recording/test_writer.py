"""Recordings on disk: what is written is read again, and damage is said, whatever it is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.errors import RecordingCorrupt, RecordingError
from relive.recording import layout
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter

NOTE = EventKind.NOTE
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner, max_size=2),
    max_leaves=5,
)


def write(directory: Path, count: int, data: bytes = b"data", **options: int) -> None:
    writer = RecordingWriter(directory, **options)
    for _ in range(count):
        writer.append(NOTE, 1, writer.next_request(), data)
        writer.flush()
    writer.close()


def seqs(directory: Path, **options: int) -> list[int]:
    return [event.seq for event in Recording(directory).events(**options)]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(EventKind),
            st.binary(max_size=300) | st.just(bytes(70_000)),
            st.dictionaries(st.text(), ANYTHING, max_size=3),
        ),
        max_size=6,
    )
)
def test_what_is_written_is_read_again(events: list[tuple[EventKind, bytes, dict[str, object]]]):
    with tempfile.TemporaryDirectory() as directory:
        writer = RecordingWriter(Path(directory), segment_bytes=100_000)
        for kind, data, fields in events:
            writer.append(kind, 3, 7, data, fields)
            writer.flush()
        writer.close()
        found = list(Recording(Path(directory)).events())
    assert [(e.kind, e.data, e.fields, e.connection, e.request) for e in found] == [
        (*e, 3, 7) for e in events
    ]
    assert [e.seq for e in found] == list(range(1, len(events) + 1))


def test_flushed_events_survive_kill_9(tmp_path: Path):
    """The writer is killed while it writes: every seq that the head file tells can be read."""
    program = (
        "import sys; from pathlib import Path\n"
        "from relive.recording.events import EventKind; from relive.recording.writer import RecordingWriter\n"
        "w = RecordingWriter(Path(sys.argv[1]), segment_bytes=50_000)\n"
        "while True:\n w.append(EventKind.NOTE, 1, w.next_request(), b'x' * 500); w.flush()"
    )
    recording = Recording(tmp_path)
    for _ in range(3):
        before = recording.cursor()
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
        while (now := recording.cursor()) is None or now.seq < (before.seq if before else 0) + 300:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        cursor = recording.cursor()
        assert cursor is not None
        found = seqs(tmp_path)
        assert found == list(range(1, len(found) + 1))
        assert found[-1] in (cursor.seq, cursor.seq + 1)  # killed between the write and the head
    writer = RecordingWriter(tmp_path)
    *_, last = recording.events()
    # No number is given twice; one that was taken right before a kill is lost.
    assert writer.next_request() in (last.request + 1, last.request + 2)
    writer.close()


@pytest.mark.parametrize("keeps_head", [True, False])
def test_a_torn_tail_is_said_and_cut_off_by_the_next_writer(tmp_path: Path, keeps_head: bool):
    write(tmp_path, 3)
    path = layout.segment_path(tmp_path, 1)
    os.truncate(path, path.stat().st_size - 1)
    if not keeps_head:
        (tmp_path / "head").unlink()
    recording = Recording(tmp_path)
    assert [event.seq for event in recording.events()] == [1, 2]
    assert recording.torn is not None
    assert recording.torn.path == path
    said: list[str] = []
    writer = RecordingWriter(tmp_path, on_trouble=said.append)
    seq = writer.append(NOTE)
    writer.close()
    assert "torn" in said[0]
    assert seq == (4 if keeps_head else 3)
    assert seqs(tmp_path) == [1, 2, seq]


def test_a_damaged_record_is_reported_with_its_offset_and_what_follows_is_kept(tmp_path: Path):
    write(tmp_path, 3)
    path = layout.segment_path(tmp_path, 1)
    raw = bytearray(path.read_bytes())
    place = list(Recording(tmp_path).events_with_places())[1][1]
    raw[place.offset + 20] ^= 1
    path.write_bytes(raw)
    write(tmp_path, 2)
    events = Recording(tmp_path).events()
    assert next(events).seq == 1
    with pytest.raises(RecordingCorrupt, match=f"offset {place.offset}"):
        next(events)
    assert seqs(tmp_path, after=3) == [4, 5]


def test_numbers_are_not_given_twice_when_head_and_tail_are_damaged(tmp_path: Path):
    write(tmp_path, 5)
    (tmp_path / "head").unlink()
    path = layout.segment_path(tmp_path, 1)
    path.write_bytes(path.read_bytes()[: layout.SEGMENT_HEADER_BYTES] + b"junk" * 100)
    writer = RecordingWriter(tmp_path)
    assert writer.next_request() > 5
    assert writer.append(NOTE) > 5
    writer.close()
    assert path.read_bytes().endswith(b"junk")


@pytest.fixture(scope="module")
def whole() -> Iterator[bytes]:
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), 4)
        yield layout.segment_path(Path(directory), 1).read_bytes()


def read_raw(raw: bytes) -> list[Event]:
    with tempfile.TemporaryDirectory() as directory:
        layout.segment_path(Path(directory), 1).write_bytes(raw)
        found: list[Event] = []
        with contextlib.suppress(RecordingCorrupt):
            for event in Recording(Path(directory)).events():
                found.append(event)
        return found


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_cut_flipped_and_junk_bytes_give_only_the_declared_error(whole: bytes, data: st.DataObject):
    """And never an event that was not written."""
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = raw[: data.draw(st.integers(0, len(raw)))] + data.draw(st.binary(max_size=64))
    written = [(event.seq, event.data, event.kind) for event in read_raw(whole)]
    found = [(event.seq, event.data, event.kind) for event in read_raw(bytes(cut))]
    assert found == written[: len(found)]


@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=80) | ANYTHING.map(lambda value: __import__("msgpack").packb(value)))
def test_hostile_bodies_with_a_right_checksum_give_only_the_declared_error(whole: bytes, body: bytes):
    import zlib

    header = layout.RECORD_HEADER.pack(len(body), len(body) ^ 0xFFFFFFFF, zlib.crc32(body))
    assert read_raw(whole[: layout.SEGMENT_HEADER_BYTES] + header + body) == []


def test_a_newer_layout_is_refused_not_guessed_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layout, "VERSION", 2)
    write(tmp_path, 1)
    monkeypatch.undo()
    (tmp_path / "head").unlink()
    with pytest.raises(RecordingError, match="another version"):
        seqs(tmp_path)
    with pytest.raises(RecordingError, match="another version"):
        RecordingWriter(tmp_path)


def test_a_recording_has_one_writer(tmp_path: Path):
    writer = RecordingWriter(tmp_path)
    with pytest.raises(RecordingError, match="another process"):
        RecordingWriter(tmp_path)
    writer.close()
    RecordingWriter(tmp_path).close()


def test_retention_drops_the_oldest_segments(tmp_path: Path):
    write(tmp_path, 100, bytes(1000), segment_bytes=10_000, keep_bytes=35_000)
    total = sum(path.stat().st_size for path in tmp_path.glob("*.events"))
    assert total <= 45_000  # the segment being written comes on top
    found = seqs(tmp_path)
    assert found == list(range(found[0], 101))
    assert seqs(tmp_path, after=90, until=93) == [91, 92, 93]


def test_a_full_disk_switches_recording_off_and_on_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On a real file system of 1 MiB, filled and emptied again."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", tmp_path], check=False).returncode:
        pytest.skip("mounting needs root")
    monkeypatch.setattr("relive.recording.writer.RETRY_SECONDS", 0.0)
    monkeypatch.setattr("relive.recording.writer.ROOM_TO_RESUME_BYTES", 100_000)
    try:
        said: list[str] = []
        writer = RecordingWriter(tmp_path, on_trouble=said.append)
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(900_000))
        for _ in range(100):
            writer.append(NOTE, data=bytes(10_000))
            writer.flush()
        assert not writer.is_on
        lost = writer.lost
        ballast.unlink()
        after = writer.append(NOTE, data=b"room again")
        writer.flush()
        assert writer.is_on
        writer.close()
        events = list(Recording(tmp_path).events())
        assert events[-1].seq == after == 102  # the note of the loss took one
        assert events[-2].fields == {
            "about": "disk",
            "text": "recording was off because the disk was full",
            "lost": lost,
        }
        assert len(events) == 102 - lost
        assert ["off" in said[0], "on again" in said[1]] == [True, True]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_small_event_costs_no_more_than_10_microseconds(tmp_path: Path):
    """With its own flush each; the best of some rounds, since the machine may be busy."""
    writer = RecordingWriter(tmp_path)
    best = 1.0
    for _ in range(20):
        begun = time.perf_counter()
        for _ in range(500):
            writer.append(NOTE, 1, 1, b"x" * 100, {"bytes": 100})
            writer.flush()
        best = min(best, (time.perf_counter() - begun) / 500)
    writer.close()
    assert best < 10e-6

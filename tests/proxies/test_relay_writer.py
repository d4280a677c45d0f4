"""The recording that the relay writes: bytes and promises are those of ``RecordingWriter``, whose own tests say them in full."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.config import load_settings
from relive.proxies.ingress.options import RELAY
from relive.proxies.relay import PostKind
from relive.proxies.relay_writer import RelayWriter
from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.writer import RecordingWriter
from support.waiting import eventually

NOTE = EventKind.NOTE
LIBRARY = load_settings().tools_path / RELAY
FIELDS = st.dictionaries(
    st.text(max_size=40),
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    max_size=3,
)


def opened(
    directory: Path, keep_bytes: int | None = None, on_trouble: Callable[[str], None] = print
) -> RelayWriter:
    return RelayWriter(LIBRARY, directory, keep_bytes=keep_bytes, keep_seconds=None, on_trouble=on_trouble)


def hear(writer: RelayWriter) -> Iterator[PostKind]:
    """Act on what the relay posts, as the proxy does."""
    for post in writer.relay.posts():
        if post.kind is PostKind.RECORDING_OFF:
            writer.switched_off(post.extra)
        elif post.kind is PostKind.RECORDING_ON:
            writer.switched_on(post.extra)
        elif post.kind is PostKind.SEGMENT_BEGUN:
            writer.segment_begun()
        yield post.kind


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(EventKind),
            st.integers(0, 2**64 - 1),
            st.binary(max_size=300) | st.sampled_from((bytes(4096), bytes(4097), bytes(70_000))),
            FIELDS,
        ),
        max_size=6,
    )
)
def test_what_is_written_is_read_again(events: list[tuple[EventKind, int, bytes, dict[str, object]]]):
    with tempfile.TemporaryDirectory() as directory:
        writer = opened(Path(directory))
        for kind, request, data, fields in events:
            writer.append(kind, 3, request, data, fields)
        writer.flush()
        writer.close()
        found = list(Recording(Path(directory)).events())
    assert [(e.kind, e.request, e.data, e.fields) for e in found] == events
    assert [e.seq for e in found] == list(range(1, len(events) + 1))


def test_numbers_go_on_whichever_writer_comes_next(tmp_path: Path):
    for count, make in enumerate((RecordingWriter, opened, RecordingWriter, opened), 1):
        writer = make(tmp_path)
        assert (writer.next_request(), writer.next_connection()) == (count, count)
        assert writer.append(NOTE) == count
        writer.close()
        writer.close()
    assert [event.seq for event in Recording(tmp_path).events()] == [1, 2, 3, 4]


def test_flushed_events_survive_kill_9(tmp_path: Path):
    program = (
        "import sys; from pathlib import Path; from relive.recording.events import EventKind\n"
        "from relive.proxies.relay_writer import RelayWriter\n"
        "w = RelayWriter(Path(sys.argv[1]), Path(sys.argv[2]), keep_bytes=400_000, keep_seconds=None, on_trouble=print)\n"
        "while True:\n w.append(EventKind.NOTE, 1, w.next_request(), b'x' * 500); w.flush()"
    )
    recording = Recording(tmp_path)
    with subprocess.Popen([sys.executable, "-c", program, LIBRARY, tmp_path]) as process:
        eventually(lambda: (now := recording.cursor()) is not None and now.seq > 300)
        process.send_signal(signal.SIGKILL)
    cursor = recording.cursor()
    assert cursor is not None
    found = [event.seq for event in recording.events()]
    assert found == list(range(found[0], found[-1] + 1))  # the oldest segments may have been dropped by then
    assert found[-1] in (cursor.seq, cursor.seq + 1)  # killed between the write and the head


def test_full_segments_are_followed_by_others_and_the_oldest_go(tmp_path: Path):
    writer = opened(tmp_path, keep_bytes=600_000)
    for _ in range(100):
        writer.append(NOTE, data=bytes(10_000))
        writer.flush()
    assert list(hear(writer)).count(PostKind.SEGMENT_BEGUN) > 10
    first = writer.segment
    writer.close()
    found = [event.seq for event in Recording(tmp_path).events()]
    assert found == list(range(found[0], 101))
    assert 1 < found[0] < first < 101
    assert sum(path.stat().st_size for path in tmp_path.glob("*.events")) <= 700_000


def test_a_full_disk_switches_recording_off_and_on_again(tmp_path: Path):
    """On a real file system of 8 MiB, filled and emptied again."""
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", tmp_path], check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        said: list[str] = []
        writer = opened(tmp_path, on_trouble=said.append)
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(7_500_000))
        for _ in range(100):
            writer.append(NOTE, data=bytes(10_000))
            writer.flush()
        assert not writer.is_on
        ballast.unlink()

        def is_on_again() -> bool:
            writer.append(NOTE, data=b"room again")
            writer.flush()
            return writer.is_on

        eventually(is_on_again)
        assert list(hear(writer)) == [PostKind.RECORDING_OFF, PostKind.SEGMENT_BEGUN, PostKind.RECORDING_ON]
        writer.close()
        events = list(Recording(tmp_path).events())
        assert events[-1].data == b"room again"
        note = events[-2].fields
        assert (note["about"], note["text"]) == ("disk", "recording was off because the disk was full")
        assert events[-1].seq == len(events) + note["lost"]
        assert ["off" in said[0], "on again" in said[1]] == [True, True]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_library_that_cannot_be_loaded_leaves_the_recording_to_others(tmp_path: Path):
    (tmp_path / "library").write_bytes(b"not one")
    with pytest.raises(OSError, match="library"):
        RelayWriter(
            tmp_path / "library", tmp_path / "rec", keep_bytes=None, keep_seconds=None, on_trouble=print
        )
    writer = RecordingWriter(tmp_path / "rec")
    assert writer.append(NOTE) == 1
    writer.close()

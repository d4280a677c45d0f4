"""What is dropped of a recording, and what is kept for incidents."""

from __future__ import annotations

import os
from pathlib import Path

from relive.recording.events import EventKind
from relive.recording.reader import Recording
from relive.recording.retention import RecordingSegment, excess, pin, pinned_ranges
from relive.recording.writer import RecordingWriter


def segments(*sizes: int) -> list[RecordingSegment]:
    """Ten events each, written to one after the other, at 1, 2, 3 ns ..."""
    return [RecordingSegment(Path(str(n)), 10 * n, size, n + 1) for n, size in enumerate(sizes)]


def dropped(found: list[RecordingSegment]) -> list[int]:
    return [int(one.path.name) for one in found]


def test_the_oldest_go_first_and_the_last_one_stays():
    assert dropped(excess(segments(5, 5, 5, 5), [], keep_bytes=10, oldest_ns=None)) == [0, 1]
    assert dropped(excess(segments(5, 50), [], keep_bytes=10, oldest_ns=None)) == [0]
    assert dropped(excess(segments(5, 5), [], keep_bytes=None, oldest_ns=None)) == []
    assert dropped(excess(segments(5, 5, 5), [], keep_bytes=None, oldest_ns=9)) == [0, 1]


def test_what_incidents_need_stays_and_is_bounded_too():
    found = segments(5, 5, 5, 5, 5, 5)
    assert dropped(excess(found, [(5, 12)], keep_bytes=10, oldest_ns=None)) == [2, 3]
    assert dropped(excess(found, [(5, 12)], keep_bytes=None, oldest_ns=9)) == [2, 3, 4]
    assert dropped(excess(found, [(0, 39)], keep_bytes=10, oldest_ns=None)) == [0, 1]


def test_a_writer_drops_what_is_too_much_but_for_what_is_pinned(tmp_path: Path):
    writer = RecordingWriter(tmp_path, keep_bytes=8 * 65536)
    body = os.urandom(20000)
    for number in range(1, 101):
        writer.append(EventKind.REQUEST_BODY, 1, number, body)
        writer.flush()
        if number == 20:
            pin(tmp_path, 5, 8)
    writer.close()
    left = [event.request for event in Recording(tmp_path).events()]
    assert left[-1] == 100 and {5, 6, 7, 8} <= set(left) and 20 not in left
    assert sum(path.stat().st_size for path in tmp_path.glob("*.events")) < 11 * 65536


def test_a_writer_drops_what_is_too_old(tmp_path: Path):
    first = RecordingWriter(tmp_path)
    first.append(EventKind.NOTE, fields={"about": "gate", "text": "old"})
    first.close()
    for path in tmp_path.glob("*.events"):
        os.utime(path, (1, 1))
    second = RecordingWriter(tmp_path, keep_seconds=3600)
    second.append(EventKind.NOTE, fields={"about": "gate", "text": "new"})
    second.close()
    assert [event.fields["text"] for event in Recording(tmp_path).events()] == ["new"]


def test_a_damaged_line_pins_nothing(tmp_path: Path):
    assert pinned_ranges(tmp_path) == []
    pin(tmp_path, 3, 4)
    with (tmp_path / "pinned").open("ab") as file:
        file.write(b"x\n7")
    assert pinned_ranges(tmp_path) == [(3, 4)]

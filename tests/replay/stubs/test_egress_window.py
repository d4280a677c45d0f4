"""What is kept of a recording: what may matter, within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.protocols import egress_window
from relive.protocols.egress_window import read_egress
from relive.recording.dialogues import Way
from relive.recording.events import EventKind
from relive.recording.writer import RecordingWriter

SECOND = 1_000_000_000
TO = ("10.0.0.5", 99)


class Egress:
    """A recording that is written event by event, a second apart."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._writer = RecordingWriter(directory)
        self.now = 0

    def add(self, kind: EventKind, connection: int, data: bytes = b"", **fields: object) -> None:
        self.now += SECOND
        self._writer.append(kind, connection, 0, data, fields, (self.now, self.now))

    def open(self, connection: int) -> None:
        self.add(EventKind.DIALOGUE_OPENED, connection, to=TO, origin=("10.0.0.1", connection))

    def say(self, connection: int, data: bytes, at: int = 0) -> None:
        self.add(EventKind.DIALOGUE_UP, connection, data, at=at)

    def end(self, connection: int) -> None:
        for way in ("up", "down"):
            self.add(EventKind.DIALOGUE_ENDED, connection, way=way, how="closed", bytes=1, cut=0)

    def read(self, taken_ns: int, until_ns: int | None = None) -> egress_window.EgressWindow:
        self._writer.flush()
        found = read_egress(self.directory, taken_ns, until_ns)
        assert found is not None
        return found


@pytest.fixture
def egress(tmp_path: Path) -> Egress:
    return Egress(tmp_path / "egress")


def test_nobody_recorded_it(tmp_path: Path) -> None:
    assert read_egress(tmp_path / "egress", 0) is None


def test_of_what_was_over_before_the_last_openings_are_kept(
    egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_window, "_OPENING", 4)
    for number in range(1, 8):
        egress.open(number)
        egress.say(number, b"first")
        egress.say(number, b"second", 5)
        egress.end(number)
    egress.open(8)
    egress.say(8, b"first")
    egress.say(8, b"second", 5)
    found = egress.read(egress.now)
    assert [one.number for one in found.dialogues] == [4, 5, 6, 7, 8]
    assert found.dialogues[0].text(Way.UP) == b"first"
    assert found.dialogues[-1].text(Way.UP) == b"firstsecond"  # it had not ended


def test_it_is_read_to_a_moment_beyond_the_end(egress: Egress) -> None:
    egress.open(1)
    for place in range(10):
        egress.say(1, b"x", place)
    assert len(egress.read(0, 3 * SECOND).dialogues[0].pieces) == 4  # two seconds beyond: events 4 and 5
    assert len(egress.read(0).dialogues[0].pieces) == 10


def test_too_much_is_left_out_from_one_moment_on(egress: Egress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress_window, "_MOST_BYTES", 25)
    egress.open(1)
    for place in range(5):
        egress.say(1, b"0123456789", place * 10)
    found = egress.read(0)
    assert (len(found.dialogues[0].pieces), found.left_out) == (3, 2)


def test_damage_is_told_and_what_came_before_is_kept(egress: Egress) -> None:
    egress.open(1)
    egress.say(1, b"said before")
    egress.say(1, b"damaged later", 11)
    egress.read(0)
    (segment,) = egress.directory.glob("*.events")
    raw = bytearray(segment.read_bytes())
    raw[raw.index(b"damaged")] ^= 1
    segment.write_bytes(raw)
    found = egress.read(0)
    assert found.dialogues[0].text(Way.UP) == b"said before"
    assert found.damage is not None and "checksum" in found.damage


def test_events_without_their_fields_are_damage_too(egress: Egress) -> None:
    egress.open(1)
    egress.add(EventKind.DIALOGUE_UP, 1, b"without a place")
    assert egress.read(0).damage is not None

"""Copies of packets as the kernel puts them into its ring, made by a test, and the library that reads them."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from relive.config import load_settings
from relive.kernel.calltap import Tap
from relive.kernel.tapprograms import RING_BYTES
from relive.proxies.egress._resumption import read_unfinished
from relive.proxies.egress.tapped import TappedDialogues
from relive.proxies.ingress.options import RELAY
from relive.proxies.relay_writer import RelayWriter
from relive.recording.dialogues import Dialogue, read_dialogues
from relive.recording.events import Event
from relive.recording.reader import Recording

UP, DOWN, CLOSED = 0, 1, 5
FIN, SYN, RST, ACK, IS_CLOSED = 1, 2, 4, 16, 256
_PAGE = os.sysconf("SC_PAGESIZE")


class Copies:
    """A ring that no kernel fills, and what is recorded of it."""

    def __init__(self, recording: Path) -> None:
        self.recording = recording
        self._ring, self._notes = os.memfd_create("ring"), os.memfd_create("notes")
        os.truncate(self._ring, 2 * _PAGE + 2 * RING_BYTES)
        os.truncate(self._notes, _PAGE)
        self._end = 0

    def put(
        self, of: Conversation, kind: int, flags: int, at: int = 0, acked: int = 0, data: bytes = b""
    ) -> None:
        """A copy; ``at`` and ``acked`` are places, -1: of SYN."""
        way = int(kind == DOWN)
        sequence, acknowledged = (of.bases[way] + at) % (1 << 32), (of.bases[1 - way] + acked) % (1 << 32)
        numbers = (len(data), kind, sequence, acknowledged, flags, *of.bases, 4, 1000, 2000)
        head = (
            struct.pack("=QQ10I", time.monotonic_ns(), of.who, *numbers) + b"\x7f\0\0\1".ljust(16, b"\0") * 2
        )
        record = head + struct.pack("=II", len(data), 0) + data
        os.pwrite(self._ring, struct.pack("=II", len(record), 0) + record, 2 * _PAGE + self._end)
        self._end += (len(record) + 8 + 7) // 8 * 8
        assert self._end <= RING_BYTES
        os.pwrite(self._ring, struct.pack("=Q", self._end), _PAGE)

    def note(self, which: int) -> int:
        """A number of ``struct notes``."""
        return int.from_bytes(os.pread(self._notes, 8, 8 * which), "little")

    def set_note(self, which: int, value: int) -> None:
        """Change it."""
        os.pwrite(self._notes, value.to_bytes(8, "little"), 8 * which)

    def lose(self) -> None:
        """One more packet was not copied."""
        self.set_note(0, self.note(0) + 1)

    def put_back(self) -> None:
        """All that was taken is in the ring again."""
        os.pwrite(self._ring, bytes(8), 0)

    def rewind(self) -> None:
        """All was taken: what is put from now on lies at the beginning."""
        self._end = 0
        os.pwrite(self._ring, bytes(8), 0)
        os.pwrite(self._ring, bytes(8), _PAGE)

    @contextmanager
    def reader(self) -> Iterator[TappedDialogues]:
        """One process's, which goes on with what is recorded."""
        before = read_unfinished(self.recording) if self.recording.exists() else []
        library = load_settings().tools_path / RELAY
        writer = RelayWriter(library, self.recording, keep_bytes=None, keep_seconds=None, on_trouble=print)
        tapped = TappedDialogues(writer.relay, Tap(os.dup(self._ring), os.dup(self._notes), RING_BYTES))
        for one in before:
            tapped.resume(one)
        yield tapped
        tapped.close()
        writer.close()

    def take(self) -> None:
        """Record what is there."""
        with self.reader() as tapped:
            tapped.take()

    def events(self) -> list[Event]:
        """All that is recorded."""
        return list(Recording(self.recording).events())

    def dialogues(self) -> list[Dialogue]:
        """That are recorded."""
        return read_dialogues(self.events())

    def close(self) -> None:
        """Nothing more is put."""
        os.close(self._ring)
        os.close(self._notes)


class Conversation:
    """One connection; ``bases``: sequence numbers of its first bytes, up and down."""

    def __init__(self, copies: Copies, who: int, bases: tuple[int, int]) -> None:
        self.copies, self.who, self.bases = copies, who, bases

    def begin(self) -> None:
        """SYN and its answer."""
        self.put(UP, SYN, at=-1)
        self.put(DOWN, SYN | ACK, at=-1)

    def put(self, kind: int, flags: int, at: int = 0, acked: int = 0, data: bytes = b"") -> None:
        """As ``Copies.put``."""
        self.copies.put(self, kind, flags, at, acked, data)

    def close(self, up: int, down: int) -> None:
        """The service closes it, after so many bytes."""
        self.put(CLOSED, 0)
        self.put(UP, FIN | ACK | IS_CLOSED, at=up, acked=down)

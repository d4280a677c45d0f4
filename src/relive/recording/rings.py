"""Reading the rings of a service's Python processes. Their layout is in ``relive_inprocess/relive_recorder/ring.py``.

A ring is written by the service, so it is read as something hostile: nothing in it can make a reader fail other than by
``RecordingCorrupt``, follow a link, or take more memory than the ring's own size.

There is no lock: the writer goes on while we read, and overwrites what nobody has read in time. ``head`` counts all bytes ever
written, so its difference to our own place says what is new and whether it is still there; it is read once more after the
bytes, and what may have been overwritten in between is dropped and counted as lost. Records are then found by their shape
(length and its complement, CRC-32).

Invariant: what ``read_new`` gave counts as taken only when ``note_taken`` says that it is kept; an agent that is killed in
between, or its successor, gets it again, and ``own_seq`` shows what came twice.
"""

from __future__ import annotations

import json
import os
import stat
import struct
import zlib
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from relive.errors import RecordingCorrupt
from relive.recording import layout
from relive.recording.events import Event, EventKind

__all__ = ["INSIDE_KINDS", "RingMode", "RingReader", "event_at", "make_branch_ring", "parse"]

_MAGIC = b"RELIVRNG"
_VERSION = 1
_PAGE = 4096
_HEADER = struct.Struct("<8sQQQQQQQQQ")
_RECORD = struct.Struct("<IIII")
_TAKEN_AT = 72
_CAPACITY_MOST = 1 << 30
INSIDE_KINDS = {
    kind.value: kind for kind in EventKind if kind not in (EventKind.RECORDER_STARTED, EventKind.COMMIT_TAKEN)
}
_LARGEST = 1 << 63
_INTEGERS = frozenset((int,))
_NO_RECORD = "no record stands there"
_decoder: Any = json.JSONDecoder()
# As ``raw_decode``, which is a call more; raises StopIteration where nothing begins.
_scan = _decoder.scan_once
_unpack, _crc32 = _RECORD.unpack_from, zlib.crc32


class RingMode(IntEnum):
    """What the recorder in a process is told to do."""

    OFF = 0
    RECORD = 1
    REPLAY = 2
    FREE = 3


@dataclass(slots=True)
class RingReader:
    """Takes events out of one process's ring, from where the last reader left off.

    Attributes:
        path: of the ring.
        lost: bytes that were overwritten before they were read, so far.
    """

    path: Path
    lost: int = 0
    _fd: int = -1
    _capacity: int = 0
    _at: int = 0
    _noted: int = 0
    pid: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Open it.

        Raises:
            RecordingCorrupt: it is no ring.
            FileNotFoundError: it is gone.
        """
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise layout.corrupt(self.path, 0, f"it cannot be opened: {error.strerror}") from error
        try:
            self._check()
        except BaseException:
            os.close(self._fd)
            raise

    def _check(self) -> None:
        facts = os.fstat(self._fd)
        header = os.pread(self._fd, _HEADER.size, 0) if stat.S_ISREG(facts.st_mode) else b""
        if len(header) != _HEADER.size or not header.startswith(_MAGIC):
            raise layout.corrupt(self.path, 0, "not the header of a ring")
        _, version, _epoch, _mode, capacity, _head, _seq, pid, _fault, taken = _HEADER.unpack(header)
        if version != _VERSION or not 0 < capacity <= _CAPACITY_MOST or facts.st_size != _PAGE + capacity:
            raise layout.corrupt(self.path, 8, f"version {version}, capacity {capacity} do not fit this file")
        self._capacity, self._at, self.pid = capacity, taken, pid & 0xFFFFFFFF
        self._noted = taken

    def close(self) -> None:
        """Let go of the file. May be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def is_switched_off(self) -> bool:
        """The recorder switched itself off because of a fault of its own; raises RecordingCorrupt as ``read_new``."""
        return bool(self._header()[8])

    def read_new(self) -> list[Event]:
        """All events since the last call. What was not noted (``note_taken``) the next reader takes again.

        Raises:
            RecordingCorrupt: what stands there is no event; the next call goes on behind all that is there now.
        """
        return parse(self.path, self.read_raw())

    def read_raw(self) -> bytes:
        """The records of all events since the last call, one behind the other, for ``parse``.

        Raises:
            RecordingCorrupt: the file is no ring any more.
        """
        head = self._head()
        if head == self._at:
            return b""
        begin = max(self._at, head - self._capacity) if head > self._at else head
        raw = self._read(begin, head)
        # While we read, the writer went on and may have written over what we read first.
        safe = min(max(begin, self._head() - self._capacity), head)
        # A record that is just being written may lie over our first one before the head says so.
        torn = safe != self._at or head - self._at > self._capacity // 2
        first = _first_record(raw[safe - begin :]) if torn else 0
        self.lost += safe + first - self._at
        self._at = head
        return raw[safe - begin + first :]

    def note_taken(self) -> None:
        """Remember in the ring that all which ``read_new`` gave is kept elsewhere."""
        if self._noted != self._at:
            os.pwrite(self._fd, struct.pack("<Q", self._at), _TAKEN_AT)
            self._noted = self._at

    def rewind(self) -> None:
        """What ``read_new`` gave since the last note was not kept: give it once more."""
        self._at = self._noted

    def _header(self) -> tuple[Any, ...]:
        raw = os.pread(self._fd, _HEADER.size, 0)
        if len(raw) != _HEADER.size:
            raise layout.corrupt(self.path, 0, "the ring was cut short")
        return _HEADER.unpack(raw)

    def _head(self) -> int:
        return int(self._header()[5])

    def _read(self, begin: int, end: int) -> bytes:
        at, length = begin % self._capacity, end - begin
        first = os.pread(self._fd, min(length, self._capacity - at), _PAGE + at)
        return first + (os.pread(self._fd, length - len(first), _PAGE) if len(first) < length else b"")


def parse(path: Path, raw: bytes) -> list[Event]:
    """All events of a ring's records, in one loop without calls of our own.

    Raises:
        RecordingCorrupt: what stands there is no event; it names the ring.
    """
    events = []
    view, at, end = memoryview(raw), 0, len(raw)
    while at < end:
        begin = at + _RECORD.size
        if begin > end:
            raise layout.corrupt(path, at, _NO_RECORD)
        length, meta_length, crc, turned = _unpack(raw, at)
        behind = begin + length
        if length ^ turned != 0xFFFFFFFF or meta_length > length or behind > end:
            raise layout.corrupt(path, at, _NO_RECORD)
        if _crc32(view[begin:behind]) != crc:
            raise layout.corrupt(path, at, _NO_RECORD)
        data_at = begin + meta_length
        events.append(_event(path, at, raw[begin:data_at], raw[data_at:behind] if data_at < behind else b""))
        at = behind
    return events


def event_at(path: Path, raw: bytes, at: int) -> Event:
    """The event of the record that begins at ``at``.

    Raises:
        RecordingCorrupt: what stands there is no event.
    """
    found = _record_at(raw, at)
    if found is None:
        raise layout.corrupt(path, at, _NO_RECORD)
    return _event(path, at, *found)


def _first_record(raw: bytes) -> int:
    """Where the first whole record begins in bytes whose beginning was overwritten."""
    at = 0
    while at + _RECORD.size <= len(raw):
        if _record_at(raw, at) is not None:
            return at
        at += 1
    return len(raw)


def _record_at(raw: bytes, at: int) -> tuple[bytes, bytes] | None:
    if at + _RECORD.size > len(raw):
        return None
    length, meta_length, crc, turned = _RECORD.unpack_from(raw, at)
    begin = at + _RECORD.size
    if length ^ turned != 0xFFFFFFFF or meta_length > length or begin + length > len(raw):
        return None
    if zlib.crc32(memoryview(raw)[begin : begin + length]) != crc:
        return None
    return raw[begin : begin + meta_length], raw[begin + meta_length : begin + length]


def _event(path: Path, at: int, meta: bytes, data: bytes) -> Event:
    try:
        text = meta.decode("utf-8", "surrogatepass")
        (seq, mono_ns, wall_ns, kind, thread, lane, request, fields), end = _scan(text, 0)
        event_kind = INSIDE_KINDS.get(kind)
        if event_kind is None or type(fields) is not dict or end != len(text):
            raise ValueError(
                f"kind {kind}, fields {type(fields).__name__}, {len(text) - end} bytes behind them"
            )
        numbers = seq, mono_ns, wall_ns, thread, lane, request
        if not _INTEGERS.issuperset(map(type, numbers)) or min(numbers) < 0 or max(numbers) >= _LARGEST:
            raise ValueError("a number is none")
    except (ValueError, TypeError, RecursionError, OverflowError, StopIteration) as error:
        raise layout.corrupt(path, at, f"the record is no event: {error!r:.200}") from error
    if b"\\ud" in meta:  # half a surrogate pair is text for Python and JSON, but not for a recording
        fields = json.loads(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"))
    fields["own_seq"], fields["thread"], fields["lane"] = seq, thread, lane
    return Event(seq, mono_ns, wall_ns, event_kind, 0, request, data, fields)


def make_branch_ring(path: Path, size: int, permissions: int, mode: RingMode) -> None:
    """The file that a process finds in a branch in the place of its ring.

    Args:
        size, permissions: of the file as the commit has it: CRIU compares them. Of size 0 is one that was just being made
            (its name ends with ``.new``); the process goes on making it.

    Raises:
        RecordingCorrupt: no ring has such a size.
        OSError: it cannot be written.
    """
    if size == 0 and path.suffix == ".new":
        path.touch(exist_ok=False)
        path.chmod(permissions)
        return
    capacity = size - _PAGE
    if not 0 < capacity <= _CAPACITY_MOST:
        raise RecordingCorrupt(f"the commit has a ring of {size} bytes", cause="no ring is as long")
    epoch = int.from_bytes(os.urandom(8), "little") | 1
    with path.open("xb") as file:
        file.write(_HEADER.pack(_MAGIC, _VERSION, epoch, mode, capacity, 0, 0, 0, 0, 0))
        os.posix_fallocate(file.fileno(), 0, size)
    path.chmod(permissions)

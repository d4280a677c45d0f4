"""The journal of a life: which paths the service was about to change, when, and what was there before.

Process 1 of the capsule writes it; ``native/init/journal.h`` says what lies in its directory and what a record looks like. Here
it is read, and the numbers by which agent and process 1 talk are set. Nothing here decides what a commit holds.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from relive.checkpoint.expected_files import ExpectedFiles
from relive.errors import CapsuleVersionUnknown
from relive.kernel.atomic_write import Durability, replacing

__all__ = [
    "Control",
    "JournalReader",
    "JournalRecord",
    "Parsed",
    "RecordKind",
    "check_version",
    "encode_record",
    "parse_records",
    "read_journal",
]

_CONTROL_SIZE = 4096  # [bytes]
_EPOCH, _KEEP, _REACHED, _BUSY, _LOST, _SERIAL, _VERSION = (
    0,
    4,
    8,
    12,
    16,
    24,
    40,
)  # offsets in struct control
_VERSIONS = (0, 1)  # 0: from before there was a number, and the same as 1
_WORD, _LONG = struct.Struct("=I"), struct.Struct("=Q")
_SEGMENT = re.compile(r"journal\.([0-9]+)")
_SETTLE_POLL = 0.001  # [s]


class RecordKind(StrEnum):
    """What was at the path before the call that the record is about; enum kind of journal.h."""

    NOTED = "-"
    AGAIN = "t"
    ABSENT = "a"
    REGULAR = "f"
    DIRECTORY = "d"
    LINK = "l"
    OTHER = "o"
    MOVED = "m"
    GONE = "x"


_WITH_CONTENT = frozenset(
    {RecordKind.REGULAR, RecordKind.DIRECTORY, RecordKind.LINK, RecordKind.OTHER, RecordKind.GONE}
)


@dataclass(frozen=True, slots=True)
class JournalRecord:
    """One record.

    Attributes:
        time_ns: CLOCK_MONOTONIC of the host.
        mode: as st_mode, and it, uid, gid, size, mtime_ns of what was there; 0 where nothing was.
        path: absolute, canonical.
        second: what a symbolic link said, or why there is no base (GONE).
    """

    serial: int
    time_ns: int
    kind: RecordKind
    mode: int
    uid: int
    gid: int
    size: int
    mtime_ns: int
    path: str
    second: str


@dataclass(frozen=True, slots=True)
class Parsed:
    """What some bytes of a journal hold.

    Attributes:
        size: bytes of whole records, and of what stands in the place of such.
        damaged: how many of these are none.
    """

    records: list[JournalRecord]
    size: int
    damaged: int


def parse_records(data: bytes) -> Parsed:
    """The whole records at the beginning of ``data``."""
    texts = data.split(b"\0")
    whole = (len(texts) - 1) // 2
    size = sum(len(text) + 1 for text in texts[: 2 * whole])
    records = []
    damaged = 0
    for head, second in zip(texts[0 : 2 * whole : 2], texts[1 : 2 * whole : 2], strict=True):
        try:
            records.append(_record(head, second))
        except ValueError:
            damaged += 1
    return Parsed(records, size, damaged)


def _record(head: bytes, second: bytes) -> JournalRecord:
    summed, _, rest = head.partition(b" ")
    if int(summed, 16) != zlib.crc32(rest + b"\0" + second + b"\0"):
        raise ValueError("the sum does not fit")
    serial, time_ns, kind, mode, uid, gid, size, mtime_ns, path = rest.split(b" ", 8)
    return JournalRecord(
        int(serial),
        int(time_ns),
        RecordKind(kind.decode()),
        int(mode, 8),
        int(uid),
        int(gid),
        int(size),
        int(mtime_ns),
        os.fsdecode(path),
        os.fsdecode(second),
    )


def encode_record(record: JournalRecord) -> bytes:
    """What ``parse_records`` reads."""
    head = f"{record.serial} {record.time_ns} {record.kind} {record.mode:o} {record.uid} {record.gid} "
    head += f"{record.size} {record.mtime_ns} {record.path}"
    rest = os.fsencode(head) + b"\0" + os.fsencode(record.second) + b"\0"
    return b"%08x " % zlib.crc32(rest) + rest


class Control:
    """The numbers that both sides see. Setting one is a plain store of an aligned word, which is atomic on x86-64."""

    def __init__(self, directory: Path) -> None:
        """Map them; they are made, all zero, where they are not there.

        Raises:
            OSError: the disk is full, or the directory is gone.
        """
        self._path = directory / "control"
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.truncate(descriptor, _CONTROL_SIZE)
            self._map = mmap.mmap(descriptor, _CONTROL_SIZE)
        finally:
            os.close(descriptor)

    def next_epoch(self) -> None:
        """Have the next change of each path recorded anew."""
        self._set(_EPOCH, self._word(_EPOCH) + 1)

    def preserve_bases(self) -> None:
        """This life has a commit: from now on what a file held is kept before its first change."""
        self._set(_KEEP, 1)

    @property
    def reached(self) -> int:
        """The number of the segment that is written to."""
        return self._word(_REACHED)

    @property
    def lost(self) -> int:
        """How many changes could not be written down."""
        return int(_LONG.unpack_from(self._map, _LOST)[0])

    def expect_nothing_new(self, expected: ExpectedFiles) -> bool:
        """Expect that no record is begun or lost from now on; False: one is under way."""
        for offset in (_REACHED, _LOST, _SERIAL):
            (word,) = _LONG.unpack_from(self._map, offset)
            expected.word(str(self._path), offset, word)
        return self._word(_BUSY) == 0

    def wait_until_idle(self, limit: float) -> bool:
        """Wait until no call of the service waits for a base, at most so many seconds; whether that came."""
        until = time.monotonic() + limit
        while self._word(_BUSY):
            if time.monotonic() > until:
                return False
            time.sleep(_SETTLE_POLL)
        return True

    def _word(self, offset: int) -> int:
        return int(_WORD.unpack_from(self._map, offset)[0])

    def _set(self, offset: int, value: int) -> None:
        _WORD.pack_into(self._map, offset, value & 0xFFFFFFFF)


def check_version(directory: Path) -> None:
    """See that what process 1 wrote, or is writing, is what is read here; nothing where it has not begun.

    Raises:
        CapsuleVersionUnknown: it is of another Relive, to which this one cannot talk.
        OSError: it cannot be read.
    """
    try:
        with (directory / "control").open("rb") as file:
            found = file.read(_CONTROL_SIZE).ljust(_CONTROL_SIZE, b"\0")
    except FileNotFoundError:
        return
    (version,) = _WORD.unpack_from(found, _VERSION)
    if version not in _VERSIONS:
        raise CapsuleVersionUnknown(
            f"the journal of the life {directory.parent.name} has version {version}",
            cause=f"another Relive started that service; this one knows versions up to {_VERSIONS[-1]}",
            remedy="use the Relive that started it, or start the service again with this one; it runs on meanwhile",
        )


@dataclass(slots=True)
class JournalReader:
    """Reads the records of a life as they come.

    Attributes:
        damaged: how many that were read are none any more.
    """

    directory: Path
    damaged: int = 0
    # (inode, bytes read) by number of the segment.
    _read: dict[int, tuple[int, int]] = field(default_factory=dict)

    def read_new(self) -> list[JournalRecord]:
        """Records since the last call (at first: all), in their order but for those of epochs that overlap.

        Where the journal was compacted meanwhile by another process, some that were read before come again.

        Raises:
            OSError: they cannot be read.
        """
        found: list[JournalRecord] = []
        for number, path in _segments(self.directory):
            try:
                file = path.open("rb")
            except FileNotFoundError:
                continue  # compacted: what it held is in a later one
            with file:
                inode = os.fstat(file.fileno()).st_ino
                known, begin = self._read.get(number, (inode, 0))
                begin = begin if known == inode else 0
                file.seek(begin)
                parsed = parse_records(file.read())
            self._read[number] = inode, begin + parsed.size
            self.damaged += parsed.damaged
            found += parsed.records
        return found

    def expect_nothing_new(self, expected: ExpectedFiles) -> bool:
        """Expect that no record is added to those that were read; False: there is one."""
        for number, path in _segments(self.directory):
            facts = path.stat()
            if self._read.get(number) != (facts.st_ino, facts.st_size):
                return False
            expected.same(str(path), facts)
        return True

    def compact(self, is_needed: Callable[[JournalRecord], bool], *, before: int, least: int) -> None:
        """Make one segment of all that are read and that nobody writes to any more; drop what is not needed of them.

        Args:
            before: the segment that is written to.
            least: bytes that they must have grown to since the last time, so that this is worth it.

        Raises:
            OSError: the disk is full; the journal is as it was.
        """
        final = [(number, path) for number, path in _segments(self.directory) if number < before]
        sizes = [path.stat().st_size for _, path in final]
        # The first holds what was kept the last time.
        if len(final) < 2 or sum(sizes[1:]) < max(least, sizes[0]):
            return
        seen: set[str] = set()
        number, last = final[-1]
        with replacing(last, durability=Durability.CONTENT) as file:
            for _, path in final:
                for record in parse_records(path.read_bytes()).records:
                    if is_needed(record) and (record.path not in seen or record.kind in _WITH_CONTENT):
                        seen.add(record.path)
                        file.write(encode_record(record))
        for gone, path in final[:-1]:
            path.unlink()
            self._read.pop(gone, None)
        facts = last.stat()
        self._read[number] = facts.st_ino, facts.st_size


def read_journal(directory: Path) -> list[JournalRecord]:
    """All records of a life, by their times; none where nothing was followed. Raises as ``check_version``."""
    if not directory.is_dir():
        return []
    check_version(directory)
    return sorted(JournalReader(directory).read_new(), key=_order)


def _order(record: JournalRecord) -> tuple[int, int]:
    return record.time_ns, record.serial


def _segments(directory: Path) -> Iterator[tuple[int, Path]]:
    found = [(int(match[1]), name) for name in os.listdir(directory) if (match := _SEGMENT.fullmatch(name))]
    for number, name in sorted(found):
        yield number, directory / name

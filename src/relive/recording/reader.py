"""Reading a recording, also while another process writes it, and also when it is damaged.

The byte layout, and what a torn tail is, are in ``layout.py``.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from relive.errors import RecordingCorrupt, RecordingError
from relive.recording import layout
from relive.recording.events import Event

__all__ = ["RecordPosition", "Recording", "RecordingHead", "ResumePoint", "TornTail"]

_READ_AHEAD = 1024 * 1024
_SMALLEST_RECORD_BYTES = 30


class RecordPosition(NamedTuple):
    """Where one record lies: the segment (its lowest seq) and the offset in bytes of the record in it."""

    segment: int
    offset: int


class TornTail(NamedTuple):
    """A segment that ends in the middle of a record, at ``offset``."""

    path: Path
    offset: int


class RecordingHead(NamedTuple):
    """What the head file says; see ``layout.py``. The numbers were not read at one instant."""

    state: int
    seq: int
    request: int
    connection: int
    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The last numbers of a recording, for the writer that goes on with it."""

    seq: int
    request: int
    connection: int
    torn: TornTail | None
    damage: RecordingCorrupt | None


class Recording:
    """A recording on disk. Opening one reads nothing; every method looks at the files as they are now.

    Attributes:
        torn: the torn tail that the last ``events`` met at the end of the *last* segment, else None. In a recording
            that is being written it may only mean that a record was half written when we looked.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.torn: TornTail | None = None

    def segments(self) -> list[Path]:
        """Segment files, oldest first; empty if there is no recording."""
        return sorted(self.directory.glob("[0-9]" * 20 + ".events"))

    def cursor(self) -> RecordingHead | None:
        """Where the writer is, in microseconds and without touching a segment; None if there is no head file.

        Raises:
            RecordingCorrupt: the head file is none.
        """
        path = self.directory / "head"
        try:
            with path.open("rb", buffering=0) as file:
                raw = file.read(layout.HEAD.size)
        except FileNotFoundError:
            return None
        if not raw:  # being made right now
            return None
        if len(raw) != layout.HEAD.size or not raw.startswith(layout.HEAD_MAGIC):
            raise layout.corrupt(path, 0, "not a head file")
        _, version, *numbers = layout.HEAD.unpack(raw)
        if version != layout.VERSION:
            raise layout.corrupt(path, 8, f"version {version} of the head file is unknown")
        return RecordingHead(*numbers)

    def sync(self) -> None:
        """Make durable what has been written so far. May take as long as the disk takes; never disturbs a reader."""
        for path in [*self.segments()[-2:], self.directory]:
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def events(self, *, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """Events with ``after`` < seq <= ``until``, in order; all up to the end without ``until``.

        Segments dropped by retention are simply absent: compare the first seq with what was asked for.

        Raises:
            RecordingCorrupt: at the first byte that is no event; events before it have been given out. Events of
                later segments are still there to be read, with an ``after`` that begins in one of them.
        """
        for event, _ in self.events_with_places(after=after, until=until):
            yield event

    def events_naming(self, needles: Collection[bytes], *, after: int = 0) -> Iterator[Event]:
        """Events in whose fields or data one of some byte strings stands, in order. Others are not decoded, so this is quick.

        Raises:
            RecordingCorrupt: as ``events``.
        """
        for path in self._segments_from(after):
            for event, _ in self._of_segment(path, is_last=False, needles=needles):
                if event.seq > after:
                    yield event

    def events_with_places(
        self, *, after: int = 0, until: int | None = None
    ) -> Iterator[tuple[Event, RecordPosition]]:
        """As ``events``, each with the place where ``event_at`` finds it again."""
        self.torn = None
        paths = self._segments_from(after)
        for index, path in enumerate(paths):
            for event, place in self._of_segment(path, is_last=index == len(paths) - 1):
                if until is not None and event.seq > until:
                    return
                if event.seq > after:
                    yield event, place

    def event_at(self, place: RecordPosition) -> Event:
        """The event of a place that ``events_with_places`` gave.

        Raises:
            RecordingError: retention has dropped that segment.
            RecordingCorrupt: there is no event there (any more).
        """
        path = layout.segment_path(self.directory, place.segment)
        try:
            with path.open("rb") as file:
                file.seek(place.offset)
                event = _read_record(file, path, place.offset, os.fstat(file.fileno()).st_size)
        except FileNotFoundError as error:
            raise _dropped(path) from error
        if event is None:
            raise layout.corrupt(path, place.offset, "the file ends here")
        return event[0]

    def last_request_before(self, path: Path) -> int:
        """Last request number given before the segment ``path``: its own requests have higher ones."""
        with path.open("rb") as file:
            header = _read_header(file, path)
        return header.last_request if header is not None else 0

    def resume_point(self) -> ResumePoint:
        """The last numbers given, and what is wrong with the last segment.

        Takes the head file's word for all that lies before its offset, so that a restart does not read 64 MiB.

        Raises:
            RecordingError: the last segment was written by a newer Relive.
        """
        try:
            head = self.cursor()
        except RecordingCorrupt:
            head = None
        if head is not None and head.segment == 0:  # made, but never written
            head = None
        numbers = (head.seq, head.request, head.connection) if head is not None else (0, 0, 0)
        torn: TornTail | None = None
        damage: RecordingCorrupt | None = None
        for path in reversed(self.segments()):
            begin = layout.SEGMENT_HEADER_BYTES
            if (
                head is not None
                and path.stem == f"{head.segment:020d}"
                and head.offset <= path.stat().st_size
            ):
                begin = max(begin, head.offset)
            try:
                with path.open("rb") as file:
                    header = _read_header(file, path)
                if header is None:
                    numbers = _highest(numbers, (int(path.stem) - 1, 0, 0))
                    continue
                named = (header.first_seq - 1, header.last_request, header.last_connection)
                numbers = _highest(numbers, named)
                for event, _ in self._of_segment(path, is_last=True, begin=begin):
                    numbers = _highest(numbers, (event.seq, event.request, event.connection))
                torn = self.torn
                break
            except RecordingCorrupt as error:
                damage = error
                # Behind the damage there may be numbers we cannot read: never more than one a record.
                unseen = path.stat().st_size // _SMALLEST_RECORD_BYTES if head is None else 0
                seq, request, connection = _highest(numbers, (int(path.stem) - 1, 0, 0))
                numbers = (seq + unseen, request + unseen, connection + unseen)
                break
        return ResumePoint(*numbers, torn=torn, damage=damage)

    def _segments_from(self, after: int) -> list[Path]:
        paths = self.segments()
        later = [index for index, path in enumerate(paths) if int(path.stem) > after + 1]
        begin = max(later[0] - 1, 0) if later else max(len(paths) - 1, 0)
        return paths[begin:]

    def _of_segment(
        self, path: Path, *, is_last: bool, begin: int | None = None, needles: Collection[bytes] | None = None
    ) -> Iterator[tuple[Event, RecordPosition]]:
        try:
            file = path.open("rb", buffering=_READ_AHEAD)
        except FileNotFoundError:  # dropped by retention since we listed it
            return
        with file:
            header = _read_header(file, path)
            if header is None:
                return
            if header.first_seq != int(path.stem):
                raise layout.corrupt(path, 16, f"the segment says it begins with {header.first_seq}")
            offset = layout.SEGMENT_HEADER_BYTES if begin is None else begin
            file.seek(offset)
            previous = header.first_seq - 1
            size = os.fstat(file.fileno()).st_size
            while (read := _read_body(file, path, offset, size)) is not None:
                body, end = read
                if needles is not None and not any(needle in body for needle in needles):
                    offset = end
                    continue
                event = layout.decode_body(path, offset, body)
                if event.seq <= previous:
                    raise layout.corrupt(path, offset, f"seq {event.seq} comes after {previous}")
                previous = event.seq
                yield event, RecordPosition(header.first_seq, offset)
                offset = end
            if is_last and offset < size:
                self.torn = TornTail(path, offset)


def _read_header(file: BinaryIO, path: Path) -> layout.SegmentHeader | None:
    """The header; None for a file that was begun when the power went."""
    raw = file.read(layout.SEGMENT_HEADER_BYTES)
    if len(raw) < layout.SEGMENT_HEADER_BYTES and layout.SEGMENT_MAGIC.startswith(raw[:8]):
        return None
    return layout.unpack_segment_header(path, raw)


def _read_record(file: BinaryIO, path: Path, offset: int, size: int) -> tuple[Event, int] | None:
    """The event at ``offset`` and the offset behind it; None at the end of the file or at a torn tail."""
    read = _read_body(file, path, offset, size)
    return (layout.decode_body(path, offset, read[0]), read[1]) if read is not None else None


def _read_body(file: BinaryIO, path: Path, offset: int, size: int) -> tuple[bytes, int] | None:
    """The body of the record at ``offset``, checked but not decoded, and the offset behind it; None as above."""
    raw = file.read(layout.RECORD_HEADER.size)
    try:
        length, turned, crc = layout.RECORD_HEADER.unpack(raw)
    except struct.error:
        return None
    if length ^ 0xFFFFFFFF != turned or not 0 < length <= layout.MAX_RECORD_BYTES:
        if length == turned == crc == 0 and not any(file.read()):
            return None  # a power cut leaves a file that was lengthened but not written
        raise layout.corrupt(path, offset, "the length of a record is damaged")
    if offset + layout.RECORD_HEADER.size + length > size:
        return None
    body = file.read(length)
    if len(body) != length:
        return None
    if zlib.crc32(body) != crc:
        raise layout.corrupt(path, offset, "a record does not match its checksum")
    return body, offset + layout.RECORD_HEADER.size + length


def _highest(left: tuple[int, int, int], right: tuple[int, int, int]) -> tuple[int, int, int]:
    return max(left[0], right[0]), max(left[1], right[1]), max(left[2], right[2])


def _dropped(path: Path) -> RecordingError:
    return RecordingError(
        f"{path} is no longer kept",
        cause="retention dropped this part of the recording",
        remedy="Give the recording more room, or keep the commits and requests you need.",
    )

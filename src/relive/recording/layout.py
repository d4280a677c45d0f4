"""Byte layout of a recording: a directory of segment files and one ``head`` file.

::

    DIR/head                            where the writer is, mapped into memory by it
    DIR/00000000000000000001.events     a segment, named by the lowest seq it may hold (20 digits)

All numbers are little-endian and unsigned. A segment is a header, then records without gaps:

======  ======  ================================================================================
offset  size    segment header
======  ======  ================================================================================
0       8       magic ``RELIVREC``
8       4       version of the layout, 1
12      4       CRC-32 of the 64 bytes of this header with these four set to 0
16      8       lowest seq this segment may hold (equals the file's name)
24      8       last request number given before this segment
32      8       last connection number given before this segment
40      8       CLOCK_MONOTONIC when the segment was begun, in nanoseconds
48      8       CLOCK_REALTIME when the segment was begun, in nanoseconds
56      8       0
======  ======  ================================================================================

======  ======  ================================================================================
offset  size    record
======  ======  ================================================================================
0       4       length of the body in bytes, 1 to ``MAX_RECORD_BYTES``
4       4       the same with all bits turned, so that a damaged length is not taken for a torn tail
8       4       CRC-32 of the body
12      length  body: msgpack ``[[seq, mono_ns, wall_ns, kind, connection, request, fields], data]``
======  ======  ================================================================================

``data`` stands last so that large bodies are written from where they are, without being copied.

======  ======  ================================================================================
offset  size    head file (4096 bytes; each number is stored whole, but they are not stored together)
======  ======  ================================================================================
0       8       magic ``RELIVHED``
8       8       version of the layout, 1
16      8       state: 0 no writer, 1 recording, 2 switched off because the disk is full
24      8       last seq: the *cursor*
32      8       last request number
40      8       last connection number
48      8       lowest seq of the current segment (its name)
56      8       bytes of the current segment that hold whole records
======  ======  ================================================================================

Rules for a reader: a record that is cut short by the end of its file is a *torn tail* (its writer was killed) and ends
the segment; anything else that does not fit is damage. A higher version is refused, not guessed at.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from relive.errors import RecordingCorrupt, RecordingError
from relive.recording.events import Event, EventKind

__all__ = [
    "HEAD_BYTES",
    "MAX_RECORD_BYTES",
    "RECORD_HEADER",
    "SEGMENT_HEADER_BYTES",
    "SegmentHeader",
    "corrupt",
    "decode_body",
    "pack_segment_header",
    "segment_path",
    "unpack_segment_header",
]

VERSION = 1
SEGMENT_MAGIC = b"RELIVREC"
HEAD_MAGIC = b"RELIVHED"
SEGMENT_HEADER = struct.Struct("<8sIIQQQQQQ")
SEGMENT_HEADER_BYTES = SEGMENT_HEADER.size
RECORD_HEADER = struct.Struct("<III")
MAX_RECORD_BYTES = 64 * 1024 * 1024
HEAD_BYTES = 4096
HEAD = struct.Struct("<8sQQQQQQQ")
# Places of the head file as indexes of 64-bit words.
HEAD_STATE, HEAD_SEQ, HEAD_REQUEST, HEAD_CONNECTION, HEAD_SEGMENT, HEAD_OFFSET = range(2, 8)
STATE_NO_WRITER, STATE_RECORDING, STATE_OFF = range(3)


class SegmentHeader(NamedTuple):
    """What a segment says of itself; see the module's table."""

    first_seq: int
    last_request: int
    last_connection: int
    mono_ns: int
    wall_ns: int


def segment_path(directory: Path, first_seq: int) -> Path:
    """Where the segment is that begins with ``first_seq``."""
    return directory / f"{first_seq:020d}.events"


def corrupt(path: Path, offset: int, cause: str) -> RecordingCorrupt:
    """The error for bytes that are no event; it names file and offset."""
    return RecordingCorrupt(
        f"{path} holds bytes that are no event at offset {offset}",
        cause=cause,
        remedy="What lies before this offset, and the other segments, can still be read.",
    )


def pack_segment_header(header: SegmentHeader) -> bytes:
    """The 64 bytes a segment begins with."""
    bare = SEGMENT_HEADER.pack(SEGMENT_MAGIC, VERSION, 0, *header, 0)
    return SEGMENT_HEADER.pack(SEGMENT_MAGIC, VERSION, zlib.crc32(bare), *header, 0)


def unpack_segment_header(path: Path, raw: bytes) -> SegmentHeader:
    """Read the first bytes of a segment.

    Raises:
        RecordingCorrupt: they are not the whole header of a segment.
        RecordingError: a newer Relive wrote it.
    """
    if len(raw) != SEGMENT_HEADER_BYTES or not raw.startswith(SEGMENT_MAGIC):
        raise corrupt(path, 0, "not the header of a segment")
    _, version, crc, *numbers, _ = SEGMENT_HEADER.unpack(raw)
    if zlib.crc32(raw[:12] + bytes(4) + raw[16:]) != crc:
        raise corrupt(path, 0, "the header does not match its checksum")
    if version != VERSION:
        raise RecordingError(
            f"{path} was written by another version of Relive",
            cause=f"its layout is version {version}, this Relive reads version {VERSION}",
            remedy="Read it with the Relive that wrote it.",
        )
    return SegmentHeader(*numbers)


def decode_body(path: Path, offset: int, body: bytes) -> Event:
    """One event from the body of a record whose checksum was right; arrays of its fields are lists, as they are in JSON.

    Raises:
        RecordingCorrupt: the body has another shape than the layout says.
    """
    try:
        meta, data = msgpack.unpackb(body, raw=False, strict_map_key=True)
        seq, mono_ns, wall_ns, kind, connection, request, fields = meta
        event = Event(seq, mono_ns, wall_ns, EventKind(kind), connection, request, data, fields)
    except Exception as error:  # msgpack raises half a dozen unrelated classes for hostile bytes
        raise corrupt(path, offset, f"the body is no event: {error!r:.200}") from error
    if not (
        _are_counts(seq, mono_ns, wall_ns, connection, request)
        and type(data) is bytes
        and type(fields) is dict
    ):
        raise corrupt(path, offset, "a value of the event has the wrong type")
    return event


def _are_counts(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)

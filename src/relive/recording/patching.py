"""Taking out of a recording, after it was written, what was not known to be secret then.

Only events that no replay is answered with are changed: log records, and what tells of processes, handlers and failures. In these
each byte of the text becomes a ``*``, so that nothing else moves: records keep their places, and a writer at work goes on.
A reader that reads that very record meanwhile may find that its checksum does not fit, and reads it again later.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Collection
from pathlib import Path

from relive.errors import RecordingCorrupt
from relive.recording import layout
from relive.recording.events import EventKind
from relive.recording.reader import Recording

__all__ = ["overwrite"]

_KINDS = frozenset(
    {
        *(EventKind.LOG_RECORD, EventKind.PROCESS_STARTED, EventKind.FAILURE),
        *(EventKind.HANDLING_STARTED, EventKind.HANDLING_BODY, EventKind.HANDLING_ENDED),
    }
)
_LAST = 8 << 20  # [bytes] at the end of the current segment


def overwrite(directory: Path, texts: Collection[bytes]) -> int:
    """Put ``*`` over these texts in the last megabytes of a recording; returns how many records were changed.

    Raises:
        OSError: a segment cannot be read or written.
    """
    if not texts:
        return 0
    changed = 0
    for path in Recording(directory).segments()[-1:]:
        with path.open("r+b", buffering=0) as file:
            changed += _in_segment(path, file.fileno(), texts)
    return changed


def _in_segment(path: Path, fd: int, texts: Collection[bytes]) -> int:
    size = os.fstat(fd).st_size
    at, changed = layout.SEGMENT_HEADER_BYTES, 0
    while at + layout.RECORD_HEADER.size <= size:
        length, turned, _ = layout.RECORD_HEADER.unpack(os.pread(fd, layout.RECORD_HEADER.size, at))
        begin = at + layout.RECORD_HEADER.size
        if length ^ turned != 0xFFFFFFFF or begin + length > size:
            break  # the writer is at it, or damage, of which a reader tells
        if at + _LAST > size:
            changed += _in_record(path, fd, at, length, texts)
        at = begin + length
    return changed


def _in_record(path: Path, fd: int, at: int, length: int, texts: Collection[bytes]) -> int:
    body = os.pread(fd, length, at + layout.RECORD_HEADER.size)
    fresh = body
    for text in texts:
        if text in fresh:
            fresh = fresh.replace(text, b"*" * len(text))
    if fresh == body:
        return 0
    try:
        if layout.decode_body(path, at, body).kind not in _KINDS:
            return 0
        layout.decode_body(path, at, fresh)
    except RecordingCorrupt:
        return 0
    header = layout.RECORD_HEADER.pack(length, length ^ 0xFFFFFFFF, zlib.crc32(fresh))
    os.pwrite(fd, header + fresh, at)
    return 1

"""The byte layout of a pack (docs/format.md): head, frames, frame table, count. Values and checks, no files.

The head stands first and the table last, since the number of frames is known only when all are written. A pack's name is the
BLAKE3 of head, table and count, and the table holds the BLAKE3 of every frame: who knows the name can check every byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntFlag

from blake3 import blake3

from relive.errors import ObjectCorrupt
from relive.store.pages.size import PAGE

__all__ = [
    "COUNT",
    "FRAME_PAGES",
    "HEAD_SIZE",
    "FrameKind",
    "PackFrame",
    "damaged",
    "decode_head",
    "decode_table",
    "encode_head",
    "encode_table",
    "table_size",
]

FRAME_PAGES = 128
HEAD_SIZE = 32
COUNT = struct.Struct("<I")
_MAGIC = b"RELPACK4"
# Those of before have no frame of a newer kind; they are the same otherwise.
_READABLE = (
    b"RELPACK2",
    b"RELPACK3",
    _MAGIC,
)
_SEALED = 1
_HEAD = struct.Struct("<8sI4x16s")
_FRAME = struct.Struct("<II32s")
_INDEX_RAW = (1 << 30) - 1  # what of the field is the raw size
_PAGES_RAW = (1 << 20) - 1
_COUNT_SHIFT, _COUNT_MOST = 20, 127  # of changed words: how many pages they are of, less one


class FrameKind(IntFlag):
    """What a frame is, in the place of the highest bits of its raw size; 0: pages, full or XORs.

    Attributes:
        INDEX: it holds no pages.
        OVERLAY: its pages are what is new in them: words that are not zero take the place of those of the full version.
            No longer written.
        WORDS: it holds changed words of pages (``words``) in the place of XORs.
        DELTA: what it holds, full pages or changed words, is compressed against a dictionary.
        DICTIONARY: what it holds, full pages or changed words, is part of this pack's dictionary for such: of all these frames, in
            their order. If it is DELTA, too, this continues the dictionary that it is compressed against.
    """

    PAGES = 0
    INDEX = 1 << 31
    OVERLAY = 1 << 30
    WORDS = 1 << 29
    DELTA = 1 << 28
    DICTIONARY = 1 << 27


@dataclass(frozen=True, slots=True)
class PackFrame:
    """A frame's bytes in the file, their checksum, and how many they are when opened and decompressed.

    Attributes:
        offset, stored: in the file.
        pages: how many it holds something of.
    """

    offset: int
    stored: int
    raw: int
    checksum: bytes
    kind: FrameKind
    pages: int

    @property
    def is_index(self) -> bool:
        """It holds no pages."""
        return bool(self.kind & FrameKind.INDEX)

    def check(self, name: str, number: int, data: bytes | memoryview) -> None:
        """Raises ObjectCorrupt where the stored bytes are not these."""
        if len(data) != self.stored or blake3(data).digest() != self.checksum:
            raise damaged(name, f"frame {number} does not match its checksum")


def encode_head(pack_id: bytes, *, is_sealed: bool) -> bytes:
    """The first HEAD_SIZE bytes."""
    return _HEAD.pack(_MAGIC, _SEALED if is_sealed else 0, pack_id)


def decode_head(name: str, head: bytes) -> tuple[bytes, bool]:
    """(pack id, it is sealed); raises ObjectCorrupt."""
    if len(head) != HEAD_SIZE:
        raise damaged(name, "it is cut off")
    magic, flags, pack_id = _HEAD.unpack(head)
    if magic not in _READABLE or flags & ~_SEALED:
        raise damaged(name, "it does not begin as a pack does")
    return pack_id, bool(flags & _SEALED)


def encode_table(frames: Sequence[PackFrame]) -> bytes:
    """The last bytes: an entry for each frame and their count."""
    entries = [_FRAME.pack(frame.stored, _encode_field(frame), frame.checksum) for frame in frames]
    return b"".join(entries) + COUNT.pack(len(frames))


def decode_table(name: str, head: bytes, table: bytes, frames_end: int) -> list[PackFrame]:
    """The frames, which must fill the file between head and table.

    Raises:
        ObjectCorrupt: head and table do not match the name.
    """
    if blake3(head + table).hexdigest() != name:
        raise damaged(name, "its header does not match its name")
    frames, offset = [], HEAD_SIZE
    for stored, field, checksum in _FRAME.iter_unpack(table[: -COUNT.size]):
        frames.append(PackFrame(offset, stored, *_decode_field(field, checksum)))
        offset += stored
    if offset != frames_end:
        raise damaged(name, "its frames do not fill it")
    return frames


def _encode_field(frame: PackFrame) -> int:
    count = frame.pages - 1 if FrameKind.WORDS in frame.kind else 0
    return frame.raw | int(frame.kind) | count << _COUNT_SHIFT


def _decode_field(field: int, checksum: bytes) -> tuple[int, bytes, FrameKind, int]:
    """All of a frame from its raw size on."""
    if field & FrameKind.INDEX:
        return field & _INDEX_RAW, checksum, FrameKind.INDEX, 0
    raw, kind = field & _PAGES_RAW, FrameKind(field >> 27 << 27)
    pages = (field >> _COUNT_SHIFT & _COUNT_MOST) + 1 if kind & FrameKind.WORDS else raw // PAGE
    return raw, checksum, kind, pages


def table_size(count: int) -> int:
    """Bytes of the table of so many frames, with the count."""
    return _FRAME.size * count + COUNT.size


def damaged(name: str, cause: str) -> ObjectCorrupt:
    """The error of a pack that cannot be used."""
    return ObjectCorrupt(
        f"pack {name[:12]} is damaged",
        cause=cause,
    )

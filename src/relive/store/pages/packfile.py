"""The byte layout of a pack (docs/format.md): head, frames, frame table, count. Values and checks, no files.

The head stands first and the table last, since the number of frames is known only when all are written. A pack's name is the
BLAKE3 of head, table and count, and the table holds the BLAKE3 of every frame: who knows the name can check every byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from blake3 import blake3

from relive.errors import ObjectCorrupt

__all__ = [
    "COUNT",
    "FRAME_PAGES",
    "HEAD_SIZE",
    "Frame",
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
_MAGIC = b"RELPACK2"
_SEALED = 1
_HEAD = struct.Struct("<8sI4x16s")
_FRAME = struct.Struct("<II32s")
_INDEX = 1 << 31  # in the place of the highest bit of the raw size
_OVERLAY = 1 << 30  # and of the second highest


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's bytes in the file, their checksum, and how many they are when opened and decompressed.

    Attributes:
        offset, stored: in the file.
        is_index: it holds no pages.
        is_overlay: its pages are what is new in them, not how it differs: words that are not zero take the place of those of
            the full version.
    """

    offset: int
    stored: int
    raw: int
    checksum: bytes
    is_index: bool
    is_overlay: bool = False

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
    if magic != _MAGIC or flags & ~_SEALED:
        raise damaged(name, "it does not begin as a pack does")
    return pack_id, bool(flags & _SEALED)


def encode_table(frames: Sequence[Frame]) -> bytes:
    """The last bytes: an entry for each frame and their count."""
    entries = [
        _FRAME.pack(
            frame.stored, frame.raw | frame.is_index * _INDEX | frame.is_overlay * _OVERLAY, frame.checksum
        )
        for frame in frames
    ]
    return b"".join(entries) + COUNT.pack(len(frames))


def decode_table(name: str, head: bytes, table: bytes, frames_end: int) -> list[Frame]:
    """The frames, which must fill the file between head and table.

    Raises:
        ObjectCorrupt: head and table do not match the name.
    """
    if blake3(head + table).hexdigest() != name:
        raise damaged(name, "its header does not match its name")
    frames, offset = [], HEAD_SIZE
    for stored, raw, checksum in _FRAME.iter_unpack(table[: -COUNT.size]):
        size = raw & ~(_INDEX | _OVERLAY)
        frames.append(Frame(offset, stored, size, checksum, bool(raw & _INDEX), bool(raw & _OVERLAY)))
        offset += stored
    if offset != frames_end:
        raise damaged(name, "its frames do not fill it")
    return frames


def table_size(count: int) -> int:
    """Bytes of the table of so many frames, with the count."""
    return _FRAME.size * count + COUNT.size


def damaged(name: str, cause: str) -> ObjectCorrupt:
    """The error of a pack that cannot be used."""
    return ObjectCorrupt(
        f"pack {name[:12]} is damaged",
        cause=cause,
        remedy="use another commit (`relive log`) that does not need it",
    )

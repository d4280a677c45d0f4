"""Checking a pack's bytes against its name. No key is needed: checksums are of the bytes as they are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.store.pages.packfile import (
    COUNT,
    HEAD_SIZE,
    PackFrame,
    damaged,
    decode_head,
    decode_table,
    table_size,
)

__all__ = ["check_pack", "damaged_frames", "read_frames"]


def read_frames(path: Path, name: str) -> list[PackFrame]:
    """The frames of a pack, as its header lists them.

    Raises:
        ObjectMissing: there is no such file.
        ObjectCorrupt: the header does not match the name, or the file is cut off.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < HEAD_SIZE + COUNT.size:
                raise damaged(name, "it is cut off")
            file.seek(size - COUNT.size)
            frames_end = size - table_size(COUNT.unpack(file.read(COUNT.size))[0])
            if frames_end < HEAD_SIZE:
                raise damaged(name, "it is cut off")
            file.seek(0)
            head = file.read(HEAD_SIZE)
            file.seek(frames_end)
            frames = decode_table(name, head, file.read(), frames_end)
    except FileNotFoundError:
        raise ObjectMissing(
            f"pack {name[:12]} is not in the store", cause="it was deleted or never arrived"
        ) from None
    decode_head(name, head)
    return frames


def check_pack(name: str, path: Path) -> None:
    """Read every byte.

    Raises:
        ObjectMissing: there is no such file.
        ObjectCorrupt: a byte of it is not what its name says.
    """
    frames = read_frames(path, name)
    with path.open("rb") as file:
        for number, frame in enumerate(frames):
            file.seek(frame.offset)
            frame.check(name, number, file.read(frame.stored))


def damaged_frames(path: Path, name: str, advance: Callable[[int], None] = lambda _: None) -> list[int]:
    """Read every byte; returns the numbers of the frames that are not what was written.

    Args:
        advance: is told how many bytes of frames have been read since it was last called.

    Raises:
        ObjectMissing, ObjectCorrupt: as ``read_frames``; then nothing of the pack can be trusted.
    """
    found = []
    frames = read_frames(path, name)
    with path.open("rb") as file:
        for number, frame in enumerate(frames):
            file.seek(frame.offset)
            try:
                frame.check(name, number, file.read(frame.stored))
            except ObjectCorrupt:
                found.append(number)
            advance(frame.stored)
    return found

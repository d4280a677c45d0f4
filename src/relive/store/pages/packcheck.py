"""Checking a whole pack against its name, without its key: for packs that come from elsewhere or are sent there."""

from __future__ import annotations

import os
from pathlib import Path

from relive.store.pages.packfile import COUNT, HEAD_SIZE, damaged, decode_head, decode_table, table_size

__all__ = ["check_pack"]


def check_pack(name: str, path: Path) -> bool:
    """Returns whether it is sealed.

    Raises:
        ObjectCorrupt: a byte of it is not what its name says.
        FileNotFoundError: it is not there.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < HEAD_SIZE + COUNT.size:
            raise damaged(name, "it is cut off")
        head = file.read(HEAD_SIZE)
        file.seek(size - COUNT.size)
        (count,) = COUNT.unpack(file.read(COUNT.size))
        frames_end = size - table_size(count)
        if frames_end < HEAD_SIZE:
            raise damaged(name, "it is cut off")
        file.seek(frames_end)
        frames = decode_table(name, head, file.read(size - frames_end), frames_end)
        _, is_sealed = decode_head(name, head)
        file.seek(HEAD_SIZE)
        for number, frame in enumerate(frames):
            frame.check(name, number, file.read(frame.stored))
    return is_sealed

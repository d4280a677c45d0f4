"""Bringing the copy of a large file up to date while the service that writes to it stands still.

Both are read, piece by piece, and only pieces that differ are written: reading from the page cache is several times as fast as
making new pages there. Where the file system can share blocks, a new copy takes no time, and this is not called.
"""

from __future__ import annotations

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from relive.store.pages.numpy_threads import load_numpy

__all__ = ["REFRESHED_FROM", "prepare_refresh", "refresh_copy"]

REFRESHED_FROM = 4 << 20  # [bytes] a smaller file is copied as fast
_PIECE = 1 << 18  # [bytes] two of them stay in a processor's cache
_THREADS = 2
_FICLONE = 0x40049409  # ioctl_ficlone(2)


def prepare_refresh() -> None:
    """Import what it needs, which takes a tenth of a second: while the service still runs."""
    load_numpy()


def refresh_copy(source: str, copy: Path) -> bool:
    """Make an earlier copy of a file equal to it, or make a new one in its place that shares its blocks.

    Args:
        source: the file; a symbolic link is followed, as those in /proc/PID/fd are.
        copy: nobody else may have it open for writing, nor read it meanwhile.

    Returns:
        False: the file has holes, and is better copied anew; nothing was changed.

    Raises:
        OSError: the disk is full, or reading failed; what is in the copy is then of no use.
    """
    reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        facts = os.fstat(reading)
        if facts.st_blocks * 512 < facts.st_size:
            return False
        writing = os.open(copy, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.ftruncate(writing, facts.st_size)
            if not _share_blocks(reading, writing):
                _refresh(reading, writing, facts.st_size)
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return True


def _share_blocks(reading: int, writing: int) -> bool:
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:
        return False
    return True


def _refresh(reading: int, writing: int, size: int) -> None:
    prepare_refresh()
    import numpy as np  # noqa: PLC0415 - importing it takes long, and few services have such files

    def look(first: int) -> None:
        new, old = np.empty(_PIECE // 8, np.uint64), np.empty(_PIECE // 8, np.uint64)
        ours, theirs = new.view(np.uint8).data, old.view(np.uint8).data
        for begin in range(first * _PIECE, size, _THREADS * _PIECE):
            count = os.preadv(reading, [ours], begin)
            is_same = count == os.preadv(writing, [theirs], begin)
            words = -(-count // 8)
            new.view(np.uint8)[count : words * 8] = old.view(np.uint8)[count : words * 8] = 0
            if not is_same or not np.array_equal(new[:words], old[:words]):
                os.pwrite(writing, ours[:count], begin)

    with ThreadPoolExecutor(_THREADS, "refresh") as pool:
        for done in [pool.submit(look, first) for first in range(_THREADS)]:
            done.result()

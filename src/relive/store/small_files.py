"""Many small files on their way into the store, in one file.

A file system makes and removes files at a millisecond each where it tells the disk of freed blocks (ext4 with ``discard``), so a
copy of each small file takes many times as long as its bytes. Here they lie one behind the other, each at the beginning of a page.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SMALL_MOST", "Part", "SmallFiles"]

SMALL_MOST = 64 << 10  # [bytes] a larger file is copied by itself
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """Where a content lies in a file of many; ``begin`` is a multiple of a page, and zeros fill its last page."""

    begin: int
    size: int


class SmallFiles:
    """One file that grows. For one thread; readers may open it by ``path`` at any time, what ``add`` gave out does not change."""

    def __init__(self, path: Path) -> None:
        """``path`` does not exist. Raises OSError: the disk is full."""
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._end = 0

    def add(self, source: str) -> Part | None:
        """Copy a file here; a symbolic link is followed, as those in /proc/PID/fd are.

        Returns:
            None: it has more than ``SMALL_MOST`` bytes by now.

        Raises:
            OSError: the disk is full, or reading failed.
        """
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.read(reading, SMALL_MOST + 1)
        finally:
            os.close(reading)
        if len(data) > SMALL_MOST:
            return None
        part = Part(self._end, len(data))
        size = -(-len(data) // _PAGE) * _PAGE
        rest = memoryview(data.ljust(size, b"\0"))
        while rest:  # the last bytes of a disk make a short write
            rest = rest[os.pwrite(self._file, rest, self._end + size - len(rest)) :]
        self._end += size
        return part

    def close(self) -> None:
        """Nothing is added any more. Doing it twice is no error."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

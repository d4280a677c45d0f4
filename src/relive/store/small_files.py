"""Many small files on their way into the store, in one file.

A file system makes and removes files at a millisecond each where it tells the disk of freed blocks (ext4 with ``discard``), so a
copy of each small file takes many times as long as its bytes. Here they lie one behind the other, each at the beginning of a page.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SMALL_MOST", "FilePart", "SmallFiles"]

SMALL_MOST = 64 << 10  # [bytes] a larger file is copied by itself
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class FilePart:
    """Where a content lies in a file of many; ``begin`` is a multiple of a page, and zeros fill its last page."""

    begin: int
    size: int


class SmallFiles:
    """One file that grows. For one thread; readers may open it by ``path`` at any time, what ``add`` gave out does not change.

    It is open only while something is added: nothing has to be closed, and a commit that was given up holds no room on the disk.
    """

    def __init__(self, path: Path) -> None:
        """``path`` does not exist; it is made with the first file."""
        self.path = path
        self._end = 0
        self._is_made = False

    def add(self, source: str, *, follow: bool = False) -> FilePart | None:
        """Copy a file here.

        Args:
            follow: go through a symbolic link, as those in /proc/PID/fd are.

        Returns:
            None: it has more than ``SMALL_MOST`` bytes by now.

        Raises:
            OSError: the disk is full, or reading failed; ELOOP for a link that is not to be followed.
        """
        reading = os.open(source, os.O_RDONLY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        try:
            data = os.read(reading, SMALL_MOST + 1)
        finally:
            os.close(reading)
        if len(data) > SMALL_MOST:
            return None
        part = FilePart(self._end, len(data))
        size = -(-len(data) // _PAGE) * _PAGE
        self._append(data.ljust(size, b"\0"))
        return part

    def _append(self, data: bytes) -> None:
        making = 0 if self._is_made else os.O_CREAT | os.O_EXCL
        file = os.open(self.path, os.O_WRONLY | making | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._is_made = True
        try:
            rest = memoryview(data)
            while rest:  # the last bytes of a disk make a short write
                rest = rest[os.pwrite(file, rest, self._end + len(data) - len(rest)) :]
        finally:
            os.close(file)
        self._end += len(data)

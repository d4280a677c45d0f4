"""Long bodies of a recording from inside: files of their own beside its segments, the oldest of which go when there are too many.

A service writes them beside its rings, so they are taken in as something hostile: no link is followed, nothing but a regular
file is read, and of none more than may be.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from pathlib import Path
from typing import TypeGuard

__all__ = ["Bodies", "is_body_name"]

_NAME = re.compile(r"[0-9]{1,20}-[0-9]{1,20}\.body")
_BLOCK = 1 << 20


def is_body_name(name: object) -> TypeGuard[str]:
    """A name as the recorder gives them: of its process and a number."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


class Bodies:
    """The directory of one recording's bodies. For one thread.

    Args:
        directory: made if absent, readable by its owner only.
        keep_bytes: of all bodies together; the last one is kept in any case.
        most: bytes of one body.
    """

    def __init__(self, directory: Path, *, keep_bytes: int, most: int) -> None:
        self._directory = directory
        self._keep_bytes = keep_bytes
        self._most = most
        directory.mkdir(mode=0o700, exist_ok=True)
        known = sorted((path.stat().st_mtime_ns, path) for path in directory.iterdir())
        self._kept = deque((path, path.stat().st_size) for _, path in known)
        self._total = sum(size for _, size in self._kept)

    def move_in(self, source: Path) -> None:
        """Copy a body and remove where it came from.

        Raises:
            OSError: it is gone, a link, no regular file, longer than allowed, or the disk is full; nothing is kept of it. A file
                that could be opened is removed all the same.
        """
        target = self._directory / source.name
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError("it is no regular file")
                size = self._copy(file.fileno(), target)
            except OSError:
                target.unlink(missing_ok=True)
                raise
            finally:
                source.unlink()
        self._kept.append((target, size))
        self._total += size
        while self._total > self._keep_bytes and len(self._kept) > 1:
            oldest, length = self._kept.popleft()
            oldest.unlink(missing_ok=True)
            self._total -= length

    def _copy(self, fd: int, target: Path) -> int:
        """The number of bytes copied; the length is counted, not believed: the service may go on writing."""
        size = 0
        with target.open("wb") as copy:
            while block := os.read(fd, _BLOCK):
                size += len(block)
                if size > self._most:
                    raise OSError(f"it is longer than {self._most} bytes")
                copy.write(block)
        return size

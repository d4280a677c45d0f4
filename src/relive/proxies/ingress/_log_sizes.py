"""Sizes of the service's log files, so that the lines of one request can be found again."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["LogSizes"]


class LogSizes:
    """Holds the files open; a file that is not there yet is tried again at each asking, and left out."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._files: dict[str, int | None] = dict.fromkeys(paths)

    def __bool__(self) -> bool:
        return bool(self._files)

    def sizes(self) -> dict[str, int]:
        """Size in bytes of each file, at this moment. A file renamed by a rotation is followed, its successor not."""
        found: dict[str, int] = {}
        for path, fd in self._files.items():
            try:
                found[path] = os.fstat(self._open(path) if fd is None else fd).st_size
            except OSError:
                continue
        return found

    def _open(self, path: str) -> int:
        self._files[path] = fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        return fd

"""Sizes of the service's log files, so that the lines of one request can be found again."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence

__all__ = ["LogSizes", "NotedLogSizes"]

_NOTED_MOST = 4096


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

    def sizes_after(self) -> dict[str, int]:
        """As ``sizes``, of what an answer that has just ended may have been logged with."""
        return self.sizes()

    def _open(self, path: str) -> int:
        self._files[path] = fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        return fd


class NotedLogSizes(LogSizes):
    """For who hears of requests late: sizes are noted again and again, and told as they were before the moment in question."""

    def __init__(self, paths: Sequence[str], moment: Callable[[], int]) -> None:
        """``moment``: when that was which is asked about, in nanoseconds on the clock of ``note``."""
        super().__init__(paths)
        self._moment = moment
        self._noted: deque[tuple[int, dict[str, int]]] = deque(maxlen=_NOTED_MOST)

    def note(self, now: int) -> dict[str, int]:
        """Note the sizes of this moment, and return them."""
        found = super().sizes()
        self._noted.append((now, found))
        return found

    def sizes(self) -> dict[str, int]:
        """The last that were noted before the moment in question; empty where none were."""
        at = bisect_right(self._noted, self._moment(), key=lambda noted: noted[0])
        return self._noted[at - 1][1] if at else {}

    def sizes_after(self) -> dict[str, int]:
        """Those of now."""
        return super().sizes()

"""Files to which a process writes its output, followed line by line.

Pipes and terminals have a reader already and are left to it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from relive.model.watched import WatchSpec

__all__ = ["FollowedFile", "LogFile", "find_logs"]

_READ_MOST = 1 << 20  # [bytes] of one file at one look
_LINE_MOST = 1 << 20  # [bytes] of a line; what is longer comes in parts
_STREAMS = (1, 2)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file with output. ``stream``: 0 for stdout, 1 for stderr, where all that has no other place goes as well."""

    path: str
    stream: int


def find_logs(pid: int, spec: WatchSpec | None) -> list[LogFile]:
    """Files to which the standard streams of a process lead, and those that were named."""
    found: dict[str, LogFile] = {}
    for stream, descriptor in enumerate(_STREAMS):
        link = f"/proc/{pid}/fd/{descriptor}"
        with contextlib.suppress(OSError):
            path = os.readlink(link)
            if stat.S_ISREG(os.stat(link).st_mode) and not path.endswith(" (deleted)"):
                found[path] = LogFile(path, stream)  # of both in one file, stderr's
    for path in spec.log_files if spec is not None else []:
        found.setdefault(path, LogFile(path, 1))
    return list(found.values())


class FollowedFile:
    """One file, from its end on; a file that takes its place under its name (rotated logs) from its beginning on."""

    def __init__(self, log: LogFile, at: tuple[int, int] | None) -> None:
        self.log = log
        self._file: BinaryIO | None = None
        self._rest = b""
        self._resumed = at
        self._is_first = True

    def position(self) -> tuple[int, int] | None:
        """(inode, bytes that were handed out); None while it is not there."""
        if self._file is None:
            return self._resumed
        return os.fstat(self._file.fileno()).st_ino, self._file.tell() - len(self._rest)

    def lines(self) -> list[bytes]:
        """Those that have come since, with their ends; the last may have none if it is too long."""
        self._reopen()
        if self._file is None:
            return []
        with contextlib.suppress(OSError):
            if os.fstat(self._file.fileno()).st_size < self._file.tell():  # cut off (copytruncate)
                self._file.seek(0)
                self._rest = b""
        self._rest += self._file.read(_READ_MOST)
        *whole, self._rest = self._rest.splitlines(keepends=True) or [b""]
        if self._rest.endswith((b"\n", b"\r")) or len(self._rest) > _LINE_MOST:
            whole, self._rest = [*whole, self._rest], b""
        return whole

    def begin(self) -> None:
        """Open it at its end, so that what comes from now on is a line of it."""
        self._reopen()

    def _reopen(self) -> None:
        try:
            now = os.stat(self.log.path)
        except OSError:
            return  # what is open may still be written to
        if self._file is not None and os.fstat(self._file.fileno()).st_ino == now.st_ino:
            return
        if self._file is not None and self._file.read(1):
            self._file.seek(-1, os.SEEK_CUR)  # the old one first, to its end
            return
        if not stat.S_ISREG(now.st_mode):
            return
        try:
            file = Path(self.log.path).open("rb")  # noqa: SIM115 - closed by ``close``, or when another takes its place
        except OSError:
            return
        self.close()
        self._file = file
        if self._resumed is not None and self._resumed[0] == now.st_ino and self._resumed[1] <= now.st_size:
            file.seek(self._resumed[1])
        elif self._is_first:
            file.seek(0, os.SEEK_END)
        self._is_first, self._resumed = False, None

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

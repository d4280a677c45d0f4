"""A directory in which one commit is put together, before anything of it is in the store."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from pathlib import Path

__all__ = ["Staging", "sweep_left_overs"]

_LEFT_OVER_AGE = 10.0  # [s] what is younger may belong to a process that has not locked it yet


class Staging:
    """Held locked so that no other process cleans it up."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.images = directory / "images"
        self.files = directory / "files"
        self.images.mkdir(parents=True)
        self.files.mkdir()
        self._lock: int | None = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def discard(self) -> None:
        """Remove what is left of it. Doing it twice is no error."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
        shutil.rmtree(self.directory, ignore_errors=True)


def sweep_left_overs(incoming: Path) -> None:
    """Remove what a crash left: what is not quite new and nobody holds locked."""
    for path in incoming.iterdir():
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - path.stat().st_mtime <= _LEFT_OVER_AGE:
                    continue
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
            finally:
                os.close(lock)

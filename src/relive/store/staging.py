"""A directory in which one commit is put together, before anything of it is in the store."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from pathlib import Path

from relive.kernel.claims import remove_left_over
from relive.store.atomic_io import LOCKED

__all__ = ["Staging", "sweep_left_overs"]

_LEFT_OVER_AGE = 10.0  # [s] what is younger, and was not named as locked, may belong to a process that has not locked it yet


class Staging:
    """Held locked so that no other process cleans it up."""

    def __init__(self, directory: Path) -> None:
        """``directory`` does not exist yet; the name of what is made has ``LOCKED`` behind it."""
        directory.mkdir()
        self._lock: int | None = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.directory = directory.rename(f"{directory}{LOCKED}")
        self.images = self.directory / "images"
        self.files = self.directory / "files"
        self.images.mkdir()
        self.files.mkdir()

    def discard(self) -> None:
        """Remove what is left of it. Doing it twice is no error."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)
        shutil.rmtree(self.directory, ignore_errors=True)


def sweep_left_overs(incoming: Path) -> None:
    """Remove what a crash left: what nobody holds locked, though it was, and what never was and is not quite new.

    What a process that was killed in a commit leaves may be as large as all files of its service, so its successor does not wait.
    """
    for path in incoming.iterdir():
        if path.name.endswith(LOCKED):
            remove_left_over(path)
        else:
            remove_left_over(path, lambda facts: time.time() - facts.st_mtime > _LEFT_OVER_AGE)

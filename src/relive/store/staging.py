"""A directory in which one commit is put together, before anything of it is in the store."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from relive.kernel.claims import remove_left_over
from relive.store.atomic_io import LOCKED
from relive.store.making import made_places

__all__ = ["SpareStagings", "Staging", "sweep_left_overs"]

_LEFT_OVER_AGE = 10.0  # [s] what is younger, and was not named as locked, may belong to a process that has not locked it yet


_SPARES_MOST = 16  # so many commits of a service are under way at once, at most
_IMAGES, _FILES = "images", "files"


class _Emptied(NamedTuple):
    """A staging directory in which nothing is left, and the descriptor that holds it locked."""

    directory: Path
    lock: int


class SpareStagings:
    """Staging directories of one target's commits that are done, emptied for its next ones. For any thread.

    Where many commits are taken a second most stage nothing, or little. On ext4 each directory that is made and removed has all
    that is made in the minutes after it take longer, since the kernel passes over the numbers of what was removed.
    """

    def __init__(self) -> None:
        self._emptied: list[_Emptied] = []
        self._is_closed = False

    def take(self) -> _Emptied | None:
        """One of them, which is the caller's now."""
        try:
            return self._emptied.pop()
        except IndexError:
            return None

    def put(self, emptied: _Emptied) -> bool:
        """Keep one; False: it stays the caller's to remove."""
        if self._is_closed or len(self._emptied) >= _SPARES_MOST:
            return False
        self._emptied.append(emptied)
        return True

    def close(self) -> None:
        """Remove them; from now on none is kept."""
        self._is_closed = True
        while (emptied := self.take()) is not None:
            _remove(emptied)


class Staging:
    """Held locked so that no other process cleans it up.

    Args:
        directory: does not exist yet; the name of what is made has ``LOCKED`` behind it.
        spares: where an emptied one comes from and goes to; None: it is made, and removed.
    """

    def __init__(self, directory: Path, spares: SpareStagings | None = None) -> None:
        self._spares = spares
        spare = spares.take() if spares is not None else None
        made = spare or _made(directory)
        self._lock: int | None = made.lock
        # Another name each time: a path in it is that of one commit only.
        self.directory = made.directory.rename(f"{directory}{LOCKED}")
        self.images = self.directory / _IMAGES
        self.files = self.directory / _FILES
        if spare is None:
            self.images.mkdir()
            self.files.mkdir()

    def discard(self) -> None:
        """Remove what is left of it. Doing it twice is no error."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        emptied = _Emptied(self.directory, lock)
        if self._spares is None or not _empty(self.directory) or not self._spares.put(emptied):
            _remove(emptied)


def _made(directory: Path) -> _Emptied:
    directory.mkdir()
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return _Emptied(directory, lock)


def _empty(directory: Path) -> bool:
    """Remove what was staged; False: something else is there, or it cannot be removed."""
    try:
        names = {entry.name for entry in os.scandir(directory)}
        if names != {_IMAGES, _FILES}:
            return False
        for entry in [*os.scandir(directory / _IMAGES), *os.scandir(directory / _FILES)]:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)  # noqa: PTH108 - scandir gives text
    except OSError:
        return False
    return True


def _remove(emptied: _Emptied) -> None:
    os.close(emptied.lock)
    shutil.rmtree(emptied.directory, ignore_errors=True)


def sweep_left_overs(incoming: Path) -> None:
    """Remove what a crash left: what nobody holds locked, though it was, and what never was and is not quite new.

    What a process that was killed in a commit leaves may be as large as all files of its service, so its successor does not wait.
    """
    for path in chain(incoming.iterdir(), *(place.iterdir() for place in made_places(incoming))):
        if path.name.endswith(LOCKED):
            remove_left_over(path)
        else:
            remove_left_over(path, lambda facts: time.time() - facts.st_mtime > _LEFT_OVER_AGE)

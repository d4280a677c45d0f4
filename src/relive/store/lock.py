"""The store's lock, a file: held shared by who takes a commit in, alone by who drops or moves something."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["StoreLock"]


class StoreLock:
    """Taken anew by each ``held``; holding it shared within holding it shared is no deadlock."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def held(self, *, shared: bool, wait: bool = True) -> Iterator[None]:
        """Hold it; raises BlockingIOError when it is taken and not to be waited for.

        On a disk that takes no writes here it holds all the same who writes through another mount of it.
        """
        descriptor = self._open()
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

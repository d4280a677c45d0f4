"""The store's lock, a file: held shared by who takes a commit in, alone by who drops or moves something."""

from __future__ import annotations

import contextlib
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
        """Hold it; raises BlockingIOError when it is taken and not to be waited for."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
            yield
        finally:
            os.close(descriptor)

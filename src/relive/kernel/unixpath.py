"""Paths of unix sockets may have at most 107 bytes (unix(7)); through /proc any directory is near."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["near"]


@contextlib.contextmanager
def near(path: Path) -> Iterator[str]:
    """A short name for ``path``, for bind or connect within the block; its directory must exist."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)

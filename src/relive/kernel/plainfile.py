"""Files that a stranger may have replaced: a service can put a link or a pipe where its output lies."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_plain"]


def open_plain(path: Path, *, appending: bool = False) -> BinaryIO:
    """Open a regular file, never what a link at its end leads to, and never waiting for the other end of a pipe.

    Args:
        appending: to append, made if it is not there; else to read.

    Raises:
        OSError: as open(2); ELOOP for a link, EINVAL for what is no regular file.
    """
    ways = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    ways |= os.O_WRONLY | os.O_APPEND | os.O_CREAT if appending else os.O_RDONLY
    descriptor = os.open(path, ways, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "ab" if appending else "rb")

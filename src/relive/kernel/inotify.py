"""Waiting for a name to appear in a directory (inotify(7))."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Self

from relive.kernel import libc

__all__ = ["AwaitedName"]

_IN_CREATE = 0x100
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows, padded with zeros
_READ_MOST = 1 << 16  # [bytes]


class AwaitedName:
    """Its descriptor becomes readable when any name is made in the directory; ``has_come`` tells whether it is the one."""

    def __init__(self, directory: Path, name: str) -> None:
        """Begin to watch; a name that is there already does not count.

        Raises:
            OSError: the directory is not there, or the user's inotify instances are used up (EMFILE).
        """
        self._name = os.fsencode(name)
        self._descriptor = libc.call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            libc.call("inotify_add_watch", self._descriptor, os.fsencode(directory), _IN_CREATE)
        except OSError:
            os.close(self._descriptor)
            raise

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._descriptor

    def has_come(self) -> bool:
        """The name was made since the last call."""
        try:
            data = os.read(self._descriptor, _READ_MOST)
        except BlockingIOError:
            return False
        at, names = 0, []
        while at < len(data):
            _, _, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            names.append(data[at - length : at].rstrip(b"\0"))
        return self._name in names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

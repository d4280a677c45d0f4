"""Waiting for names to appear in a directory (inotify(7))."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Self

from relive.kernel import libc

__all__ = ["AwaitedName", "MadeNames"]

_IN_CREATE = 0x100
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows, padded with zeros
_READ_MOST = 1 << 16  # [bytes]


class MadeNames:
    """Its descriptor becomes readable when a name is made in the directory; ``read_new`` tells which."""

    def __init__(self, directory: Path) -> None:
        """Begin to watch; names that are there already do not count.

        Raises:
            OSError: the directory is not there, or the user's inotify instances are used up (EMFILE).
        """
        self._descriptor = libc.call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            libc.call("inotify_add_watch", self._descriptor, os.fsencode(directory), _IN_CREATE)
        except OSError:
            os.close(self._descriptor)
            raise

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self._descriptor

    def read_new(self) -> list[bytes]:
        """Names that were made since the last call; some are missing when more came than the kernel keeps."""
        try:
            data = os.read(self._descriptor, _READ_MOST)
        except BlockingIOError:
            return []
        at, names = 0, []
        while at < len(data):
            _, _, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            names.append(data[at - length : at].rstrip(b"\0"))
        return names

    def close(self) -> None:
        """End the watch."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AwaitedName(MadeNames):
    """``MadeNames`` for one name: ``has_come`` tells whether it is there."""

    def __init__(self, directory: Path, name: str) -> None:
        """As ``MadeNames``."""
        self._name = os.fsencode(name)
        super().__init__(directory)

    def has_come(self) -> bool:
        """The name was made since the last call."""
        return self._name in self.read_new()

"""Where new files of a store are made, before they are moved to their places: in a few directories that lie apart on the disk.

ext4 gives a new file an inode near its directory's, and passes there over each one that was removed in the last minute, which takes
some 50 ns. So where many commits are taken a second, and as many dropped, making a file would take a third of a millisecond. In
directories of other groups of inodes, each used for a moment in turn, there are few of those. What belongs to one commit mostly
lies together, which makes its sync cheap.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["made_places", "make_place", "place_of_now"]

_NAME = "making"  # beside ``incoming``, in which an older Relive would take a directory for left over
_PLACES = 16
_TURN_NS = 250_000_000
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602  # FS_IOC_GETFLAGS, FS_IOC_SETFLAGS
_APART = 0x20000  # FS_TOPDIR_FL: what is made in it lies apart (ext2 to ext4)
_FLAGS = struct.Struct("=l4x")


def place_of_now(incoming: Path) -> str:
    """The directory, which need not exist, for what is made at this moment."""
    return f"{incoming.parent}/{_NAME}/{time.monotonic_ns() // _TURN_NS % _PLACES:02}"


def make_place(place: str) -> None:
    """Make one; it may be there already."""
    parent = os.path.dirname(place)  # noqa: PTH120 - on the way of each commit paths are texts
    if not os.path.isdir(parent):  # noqa: PTH112
        # Not what is above it: a store that was removed, or is not mounted now, is not made anew.
        with contextlib.suppress(FileExistsError):
            os.mkdir(parent)  # noqa: PTH102
        _lay_apart(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(place)  # noqa: PTH102


def _lay_apart(directory: str) -> None:
    """Where the file system has no such flag, its directories lie as it likes."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            (flags,) = _FLAGS.unpack(fcntl.ioctl(descriptor, _GET_FLAGS, bytes(_FLAGS.size)))
            fcntl.ioctl(descriptor, _SET_FLAGS, _FLAGS.pack(flags | _APART))
    finally:
        os.close(descriptor)


def made_places(incoming: Path) -> Iterator[Path]:
    """Those that there are."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        yield from (place for place in (incoming.parent / _NAME).iterdir() if place.is_dir())

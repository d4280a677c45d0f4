"""Writing files so that they are there whole or not at all, also after the power fails."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from relive.kernel import libc
from relive.kernel.atomic_write import sync_directory
from relive.store.making import make_place, place_of_now

__all__ = [
    "LOCKED",
    "QUICK_NS",
    "SHARE",
    "FreshFile",
    "delete_file",
    "discarding",
    "finish_file",
    "make_whole",
    "publish_in_order",
    "state_of",
    "write_whole",
]


# How often an index is compared with a directory that changes all the time.
QUICK_NS = 5_000_000  # a comparison that takes no longer is always made
SHARE = 20  # of the time, at most one part in so many is spent on longer ones
_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_CLOCK_STEP_NS = 100_000_000  # file systems give times in steps, of 10 ms at most


def state_of(directory: Path) -> str | None:
    """A text that is another after names were added to a directory, removed or replaced.

    None where the last change is so new that another one might get the same time, or comes from the future.
    """
    found = os.stat(directory)
    settled = time.time_ns() - found.st_mtime_ns >= _CLOCK_STEP_NS
    return f"{found.st_dev}:{found.st_ino}:{found.st_mtime_ns}" if settled else None


def finish_file(path: Path) -> None:
    """Make a file's content durable, and the file nobody's to write to; its name still is to be made durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(descriptor, 0o400)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_file(path: Path) -> int:
    """Remove a file; returns the bytes freed, 0 if it was not there."""
    with contextlib.suppress(FileNotFoundError):
        size = path.stat().st_size
        path.unlink()
        return size
    return 0


LOCKED = ".locked"  # ends the names of what is locked from the moment it has that name, until its process is done or dead


def _begin_writing(file: int) -> None:
    """Where it fails, or the C library has no such call, all is written when it is waited for, which says what is wrong."""
    with contextlib.suppress(OSError, AttributeError):
        libc.call("sync_file_range", file, ctypes.c_int64(0), ctypes.c_int64(0), _WRITE)


class FreshFile:
    """A file in the making: beside ``incoming`` (``making``), held locked so that no other process removes it as left over."""

    def __init__(self, incoming: Path, name: str) -> None:
        place = place_of_now(incoming)
        path = f"{place}/{name}.{os.urandom(16).hex()}"
        try:
            self._file = os.open(path, _NEW, 0o600)
        except FileNotFoundError:
            make_place(place)
            self._file = os.open(path, _NEW, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._path: str | None = f"{path}{LOCKED}"
        os.rename(path, self._path)  # noqa: PTH104 - of a commit's files three times
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        """Append."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self.size += len(data)

    def complete(self, mode: int = 0o600) -> None:
        """Its content is whole; have it written to the disk, without waiting for that."""
        os.fchmod(self._file, mode)
        _begin_writing(self._file)

    def sync(self) -> None:
        """Make its content durable."""
        os.fsync(self._file)

    def expose(self, target: Path) -> None:
        """Have it found at its place, where nothing is, before it is durable; ``place`` is to follow, ``discard`` undoes it."""
        assert self._path is not None
        os.replace(self._path, target)  # noqa: PTH105
        self._path = str(target)

    def place(self, target: Path) -> None:
        """Put it at its place, replacing what is there; the name is not durable yet."""
        assert self._path is not None
        if self._path != str(target):  # else it was exposed
            os.replace(self._path, target)  # noqa: PTH105
        self._path = None
        os.close(self._file)

    def publish(self, target: Path, *, mode: int = 0o600) -> None:
        """Put it at its place, replacing what is there; durable on return."""
        self.complete(mode)
        publish_in_order([[(self, target)]])

    def discard(self) -> None:
        """Remove it, unless it was published."""
        path, self._path = self._path, None
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108
            os.close(self._file)


def publish_in_order(steps: Sequence[Sequence[tuple[FreshFile, Path]]]) -> None:
    """Put complete files at their places, durable on return; the names of one step are durable before those of the next are there.

    Contents are made durable first, those of all together: a file system with a journal writes it once for all that was completed
    before the first is waited for, not once for each. Then the names of each step are.
    """
    for fresh, _ in chain.from_iterable(steps):
        fresh.sync()
    for step in steps:
        for fresh, target in step:
            fresh.place(target)
        for directory in dict.fromkeys(target.parent for _, target in step):
            sync_directory(directory)


def write_whole(incoming: Path, path: Path, data: bytes) -> None:
    """Put a file there whole or not at all, durable on return."""
    with discarding(make_whole(incoming, data, path)) as made:
        publish_in_order([[made]])


def make_whole(incoming: Path, data: bytes, path: Path) -> tuple[FreshFile, Path]:
    """A complete file that is to be put at its place, and that."""
    fresh = FreshFile(incoming, path.name)
    try:
        fresh.write(data)
        fresh.complete()
    except BaseException:
        fresh.discard()
        raise
    return fresh, path


@contextlib.contextmanager
def discarding(made: tuple[FreshFile, Path]) -> Iterator[tuple[FreshFile, Path]]:
    """Around putting a file at its place: remove it if it did not get there."""
    try:
        yield made
    finally:
        made[0].discard()

"""Replacing a file so that who reads it sees the old content or the new one, whole, whatever is killed meanwhile.

The new content is written beside it, as ``NAME.new``, and renamed (rename(2) replaces at once). What a crash of the whole machine
leaves is another question, which each caller answers by a ``Durability``. A store's own files are written by ``store.atomic_io``:
theirs are made in another directory, where what a killed process left is found and removed.
"""

from __future__ import annotations

import contextlib
import enum
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["Durability", "replace_file", "replacing", "sync_directory"]


class Durability(enum.Enum):
    """What is there after the machine itself has stopped, as by a power failure; each step costs one fsync(2) more."""

    NONE = "none"
    """The old content, the new one, or an empty file: for what nobody reads after a boot, or what is made again."""
    CONTENT = "content"
    """The old content or the new one, whole."""
    NAME = "name"
    """The new content, once the call has returned."""


def replace_file(
    path: Path, data: bytes, *, durability: Durability, mode: int | None = None, shared: bool = False
) -> None:
    """Replace one file by ``data``, or make it; as ``replacing``."""
    with replacing(path, durability=durability, mode=mode, shared=shared) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(
    path: Path, *, durability: Durability, mode: int | None = None, shared: bool = False
) -> Iterator[BinaryIO]:
    """A new file that takes the place of ``path`` at the end of the block; if that raises, all is as it was.

    It is another inode: a hard link of the old file keeps the old content. A kill within the block leaves ``NAME.new``, which the
    next one removes. Never writes through a link that somebody put at that name.

    Args:
        mode: its permissions, whatever the umask; None: those of any new file.
        shared: several processes may replace it at the same time. The new file's name is then one of its own, and what a kill
            leaves is removed by nobody.

    Raises:
        OSError: it cannot be written.
    """
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new" if shared else f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(fresh, flags, 0o666 if mode is None else mode), "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            if durability is not Durability.NONE:
                os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    if durability is Durability.NAME:
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

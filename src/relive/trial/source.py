"""Source files of a service: what one is to become, and reading and writing them as the processes of a branch see them.

A path of a branch is opened below its root (``kernel.openat2``): a link in it leads nobody out to the host's files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from relive.kernel import openat2

__all__ = ["SourceChange", "read_in_branch", "write_in_branch"]

_MOST = 8 << 20  # [bytes] of one file


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A file that is to hold something else.

    Attributes:
        path: absolute, as the service's processes see it.
        old: what it holds now; None: it is not there, or nobody knows.
    """

    path: str
    old: str | None
    new: str


def read_in_branch(root_pid: int, path: str) -> str | None:
    """The text of a file as a process of the branch sees it; None where there is none that could be read.

    Args:
        root_pid: a process of the branch.
    """
    try:
        with _root_of(root_pid) as root, _found(root, path) as file:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return None
            with open(f"/proc/self/fd/{file}", "rb") as opened:  # noqa: PTH123 - a descriptor's link
                return opened.read(_MOST).decode()
    except (OSError, UnicodeDecodeError):
        return None


def write_in_branch(root_pid: int, path: str, text: str) -> None:
    """Have a file hold a text, in the branch alone: it lies in an overlay. Raises OSError."""
    with _root_of(root_pid) as root:
        try:
            with _found(root, path) as file:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise OSError(f"{path} is no regular file")
                with open(f"/proc/self/fd/{file}", "wb") as opened:  # noqa: PTH123
                    opened.write(text.encode())
        except FileNotFoundError:
            directory, name = os.path.split(path)
            with _found(root, directory) as parent:
                owner = os.fstat(parent)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(f"/proc/self/fd/{parent}/{name}", flags, 0o644)
                with os.fdopen(file, "wb") as opened:
                    os.fchown(file, owner.st_uid, owner.st_gid)
                    opened.write(text.encode())


@contextmanager
def _root_of(pid: int) -> Iterator[int]:
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield root
    finally:
        os.close(root)


@contextmanager
def _found(root: int, path: str) -> Iterator[int]:
    file = openat2.look_as_below(root, path)
    try:
        yield file
    finally:
        os.close(file)

"""Giving files of a branch the inode numbers that they had when they were committed.

A program may remember the number of a file that it has open. SQLite with a rollback journal asks for it again before it writes, and
takes a database with another number for one that was removed or replaced: "attempt to write a readonly database".

Overlayfs shows a file of its upper layer with the number of the file that it was copied from, its *origin*, of which it keeps a
file handle in an extended attribute (``ovl_check_origin`` in the kernel). The origin needs to have none of the bytes, and no name.
So a committed file is copied up, and its origin becomes an inode that was made for it in a file system of nothing but numbers
(``inode_filesystem``), mounted as the lowest layer. Nothing of that depends on what becomes of the file on the host, or on whether
there ever was one.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.kernel.mounts import mount_overlay, unmount
from relive.kernel.openat2 import look_without_links
from relive.sandbox.inode_filesystem import HIGHEST_NUMBER, LOWEST_NUMBER, mount_inodes

__all__ = ["InodeNumbers", "number_files"]

_ORIGIN = "trusted.overlay.origin"
# struct ovl_fb: version, magic, length, flags, type; UUID; number, generation.
_HANDLE = struct.Struct("<5B16s2I")
_MAGIC, _NUMBER_AND_GENERATION = 0xFB, 1  # FILEID_INO32_GEN
_MOST = 4096


@dataclass(frozen=True, slots=True)
class InodeNumbers:
    """A mounted file system of numbers, to be the lowest layer of overlays.

    Attributes:
        wanted: numbers by absolute path.
    """

    layer: Path
    uuid: bytes
    wanted: Mapping[str, int]

    @classmethod
    def mounted(cls, layer: Path, wanted: Mapping[str, int]) -> InodeNumbers | None:
        """Make and mount it at a directory; None where nothing is wanted, or can be had: a branch is as good without, mostly.

        Raises:
            OSError: the directory cannot be made.
        """
        able = {
            path: number
            for path, number in list(wanted.items())[:_MOST]
            if LOWEST_NUMBER <= number <= HIGHEST_NUMBER
        }
        if not able:
            return None
        layer.mkdir()
        try:
            return cls(layer, mount_inodes(layer, set(able.values())), able)
        except OSError:
            # No loop devices here, say; the branch tells which databases cannot be written for it.
            return None

    def below(self, point: str) -> dict[str, int]:
        """What is wanted below a mount point, by path relative to it."""
        top = point.rstrip("/") + "/"
        return {
            path.removeprefix(top): number for path, number in self.wanted.items() if path.startswith(top)
        }


def number_files(
    point: str, numbers: InodeNumbers, *, first: Path, lower: Sequence[Path], upper: Path, work: Path
) -> set[str]:
    """Have files of an overlay's upper layer show their numbers once it is mounted, with ``numbers.layer`` as one of ``lower``.

    Args:
        point: where it will be mounted in the branch.
        first: a directory where it can be mounted meanwhile: an overlay that is mounted knows other origins already.

    Returns:
        The absolute paths of those that have theirs; not those that are no files there.

    Raises:
        OSError: the disk is full, or as ``mount_overlay``.
    """
    wanted = numbers.below(point)
    if not wanted:
        return set()
    first.mkdir(parents=True, exist_ok=True)
    mount_overlay(first, lower=list(lower), upper=upper, work=work)
    try:
        found = _copy_up(first, upper, numbers, wanted)
    finally:
        unmount(first)
    return {f"{point.rstrip('/')}/{path}" for path in found}


def _copy_up(root: Path, upper: Path, numbers: InodeNumbers, wanted: Mapping[str, int]) -> set[str]:
    numbered: set[str] = set()
    taken: set[int] = set()  # overlayfs takes two files of one origin for one
    for path, number in wanted.items():
        if number in taken:
            continue
        with _found(root, path) as seen:
            if seen is None:
                continue
            os.close(os.open(seen, os.O_WRONLY | os.O_CLOEXEC))  # has overlayfs copy it up
        with _found(upper, path) as copied:
            if copied is None:
                continue
            origin = (0, _MAGIC, _HANDLE.size, 0, _NUMBER_AND_GENERATION, numbers.uuid, number, 0)
            os.setxattr(copied, _ORIGIN, _HANDLE.pack(*origin))
        taken.add(number)
        numbered.add(path)
    return numbered


@contextlib.contextmanager
def _found(top: Path, path: str) -> Iterator[str | None]:
    """Another path of a regular file, by a descriptor; None where there is none, or a link is on the way."""
    directory = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    found = -1
    try:
        with contextlib.suppress(OSError):
            found = look_without_links(directory, path)
        is_file = found >= 0 and stat.S_ISREG(os.fstat(found).st_mode)
        yield f"/proc/self/fd/{found}" if is_file else None
    finally:
        for descriptor in (directory, found):
            if descriptor >= 0:
                os.close(descriptor)

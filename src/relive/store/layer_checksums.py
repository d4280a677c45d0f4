"""The seal of a laid-out directory: what it has to be, so that it can be looked at before it is used again.

Two digests stand in it, and one of these two. The first is of what the kernel says of each entry: path, inode, mode, owner, size,
times of modification and of change. Whoever changes an entry through the file system changes that, and looking costs a ``stat`` for
each. The second is of all contents: it also finds what the disk itself has changed. It is looked at when the last look at it is a
minute old or older, so that twenty branches in a row pay for it once.

What it costs is measured by ``benchmarks/trees.py``.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from relive.store.objects import hash_bytes, hash_file

__all__ = ["is_as_sealed", "seal"]

_CONTENTS_EVERY = 60.0  # [s]
_LARGE = 64 << 20  # [bytes]
_STEP = 1 << 20  # [bytes]


def seal(tree: Path, place: Path) -> None:
    """Write down what a directory is now."""
    digests = f"{_facts(tree)} {_contents(tree)}"
    place.write_text(f"{digests} {hash_bytes(digests.encode())}\n")


def is_as_sealed(tree: Path, place: Path, *, every_byte: bool = False) -> bool:
    """Whether it is what it was when it was sealed; False also where the seal cannot be read.

    Args:
        every_byte: look at the contents however short ago that was done.
    """
    try:
        facts, contents, own = place.read_text().split()
        if hash_bytes(f"{facts} {contents}".encode()) != own or _facts(tree) != facts:
            return False
        age = time.time() - place.stat().st_mtime
        if every_byte or not 0 <= age < _CONTENTS_EVERY:
            if _contents(tree) != contents:
                return False
            os.utime(place)
    except (OSError, ValueError):
        return False
    return True


def _facts(tree: Path) -> str:
    lines = []
    for entry in _entries(tree):
        found = entry.stat(follow_symlinks=False)
        lines.append(
            f"{entry.path}\0{found.st_ino} {found.st_mode} {found.st_uid} {found.st_gid} {found.st_size} "
            f"{found.st_mtime_ns} {found.st_ctime_ns}"
        )
    top = tree.stat()
    # Paths without that of the tree, which moves when it is whole.
    begin = len(str(tree))
    listing = "\n".join(sorted(line[begin:] for line in lines))
    return blake3(
        f"{top.st_mode} {top.st_uid} {top.st_gid}\n{listing}".encode("utf-8", "surrogateescape")
    ).hexdigest()


def _contents(tree: Path) -> str:
    begin = len(str(tree))
    lines = []
    for entry in _entries(tree):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISREG(mode):
            lines.append(f"{entry.path[begin:]}\0{_hash_of(entry)}")
        elif stat.S_ISLNK(mode):
            lines.append(f"{entry.path[begin:]}\0{os.readlink(entry.path)}")
    return blake3("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()


def _hash_of(entry: os.DirEntry[str]) -> str:
    """Of a file's bytes; of a large one without what is zero, since most of it may be holes, which are read as slowly as data."""
    if entry.stat(follow_symlinks=False).st_size < _LARGE:
        return hash_file(Path(entry.path))
    hasher, zeros, buffer = blake3(), bytes(_STEP), memoryview(bytearray(_STEP))
    with open(entry.path, "rb", buffering=0) as file:  # noqa: PTH123 - many of them
        at = _next_data(file.fileno(), 0)
        while at is not None and (count := os.preadv(file.fileno(), [buffer], at)):
            if buffer[:count] != zeros[:count]:
                hasher.update(b"%d %d\n" % (at, count))
                hasher.update(buffer[:count])
            at = _next_data(file.fileno(), at + count)
    return hasher.hexdigest()


def _next_data(file: int, at: int) -> int | None:
    """Where to go on: the step, from there on, in which data is; None where only holes are left."""
    try:
        return max(at, os.lseek(file, at, os.SEEK_DATA) // _STEP * _STEP)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


def _entries(tree: Path) -> Iterator[os.DirEntry[str]]:
    pending = [str(tree)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)

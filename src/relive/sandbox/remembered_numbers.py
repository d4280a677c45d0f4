"""Correcting what programs remember of the numbers of a file, in a branch before it runs.

A branch's files can have the inode numbers that they had when they were committed (``inode_numbers``), and not their device
number: a mount of overlayfs has one that the kernel chooses. SQLite keeps both of each database that is open (``unixFileId``:
two words of 8 bytes, device and inode, as at the begin of ``struct stat``). It takes a connection that is opened in the branch
for one to another file then, and the two do not see each other's locks: with a write-ahead log each loses what the other
writes.

So where memory holds exactly these 16 bytes, of a database that the process has open, the branch's numbers are written there.
Nothing else is looked for: other programs tell their files apart by other means, and what is not found is as it was committed.
"""

from __future__ import annotations

import contextlib
import os
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from relive.images.file_numbers import FileNumbers
from relive.images.pagemap import PAGE_SHIFT, Run, read_pagemap
from relive.kernel import procfs

__all__ = ["Remembered", "correct_numbers", "find_remembered"]

Words = npt.NDArray[np.uint64]

_PAIR = struct.Struct("<2Q")
_WORD = 8  # [bytes]
_WORDS = (1 << PAGE_SHIFT) // _WORD  # of a page
_AT_ONCE = 1 << 18  # words: what a core's cache holds
_MOST = 4096  # places; an honest process has one for each database


@dataclass(frozen=True, slots=True)
class Remembered:
    """A place in the memory of a process that holds the numbers of a file.

    Attributes:
        pid: its number in the commit.
        address: of the device number; behind it is that of the inode.
    """

    pid: int
    address: int
    path: str
    numbers: FileNumbers


def find_remembered(images: Path, numbers: Mapping[str, FileNumbers]) -> list[Remembered]:
    """All places in a commit's private memory that hold one of the pairs; its pages are laid out as a whole.

    Raises:
        ObjectCorrupt: an image is damaged.
        OSError: a page file is not there.
    """
    wanted = {path: one for path, one in numbers.items() if max(one) < 1 << 64}
    found: list[Remembered] = []
    for pagemap in sorted(images.glob("pagemap-[0-9]*.img")) if wanted else ():
        pid = int(pagemap.stem.rpartition("-")[2])
        number, runs = read_pagemap(pagemap.name, pagemap.read_bytes())
        words = _words(images / f"pages-{number}.img")
        for path, one in wanted.items():
            found += (Remembered(pid, address, path, one) for address in _addresses(words, runs, one))
    return found[:_MOST]


def _words(pages: Path) -> Words:
    """Of a page file, in its order, mapped."""
    return np.memmap(pages, "<u8", "r") if pages.stat().st_size else np.empty(0, "<u8")


def _addresses(words: Words, runs: Sequence[Run], numbers: FileNumbers) -> list[int]:
    """Where the pair is, by address, in no order."""
    ends = list(accumulate(pages for _, pages in runs))
    found = []
    for begin in range(0, len(words), _AT_ONCE):
        # The inode number is looked for, which is the rarer of the two; before it may be the last word of the part before.
        for place in np.flatnonzero(words[begin : begin + _AT_ONCE] == numbers.inode).tolist():
            at = begin + place
            if at and int(words[at - 1]) == numbers.device:
                device, inode = _address(at - 1, runs, ends), _address(at, runs, ends)
                if device is not None and inode == device + _WORD:
                    found.append(device)
    return found


def _address(word: int, runs: Sequence[Run], ends: Sequence[int]) -> int | None:
    page, within = divmod(word, _WORDS)
    index = bisect_right(ends, page)
    if index == len(runs):
        return None
    first, pages = runs[index]
    return (first + page - (ends[index] - pages) << PAGE_SHIFT) + within * _WORD


def correct_numbers(pids: Iterable[int], remembered: Sequence[Remembered]) -> None:
    """Write what the branch's files have there; the processes are stopped, with their files open.

    A place is left as it is where it does not hold the numbers, where the process does not have the file open, and where that has
    another inode number: the branch tells that such a database cannot be written (``open_databases``).

    Raises:
        OSError: memory cannot be written.
    """
    places: dict[int, list[Remembered]] = {}
    for one in remembered:
        places.setdefault(one.pid, []).append(one)
    for pid in pids if places else ():
        # The last of its numbers is that in its own PID namespace, as in the commit.
        here = places.get(procfs.namespace_pids(pid)[-1], [])
        if here:
            _correct(pid, here, _open_files(pid))


def _correct(pid: int, places: Iterable[Remembered], opened: Mapping[str, FileNumbers]) -> None:
    memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        for place in places:
            now = opened.get(place.path)
            if now is None or now.inode != place.numbers.inode:
                continue
            if os.pread(memory, _PAIR.size, place.address) == _PAIR.pack(*place.numbers):
                os.pwrite(memory, _PAIR.pack(*now), place.address)
    finally:
        os.close(memory)


def _open_files(pid: int) -> dict[str, FileNumbers]:
    """Of all that a process has open, by path."""
    found = {}
    directory = f"/proc/{pid}/fd"
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            path, facts = os.readlink(f"{directory}/{name}"), os.stat(f"{directory}/{name}")
            found[path] = FileNumbers(facts.st_dev, facts.st_ino)
    return found

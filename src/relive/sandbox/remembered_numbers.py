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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from relive.images.file_numbers import FileNumbers
from relive.images.pagemap import PAGE_SHIFT, Run, read_pagemap
from relive.images.validation import untrusted
from relive.kernel import procfs

__all__ = ["Remembered", "correct_numbers", "find_remembered"]

Words = npt.NDArray[np.uint64]

_PAIR = struct.Struct("<2Q")
_WORD = 8  # [bytes]
_WORDS = (1 << PAGE_SHIFT) // _WORD  # of a page
_AT_ONCE = 1 << 18  # words: what a core's cache holds
_MOST_FILES, _MOST_PLACES = 64, 4096  # a process has one place for each database
_SMALL_DEVICE, _SMALL_INODE = 256, 1 << 16


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
    """The places in a commit's private memory that hold one of the pairs; its pages are laid out as a whole.

    Pairs that other numbers side by side could be are not looked for (``_is_telling``), nor more than 64 of them.

    Raises:
        ObjectCorrupt: an image is damaged, or there are more places than an honest process has.
    """
    wanted = dict(islice(((path, one) for path, one in numbers.items() if _is_telling(one)), _MOST_FILES))
    found: list[Remembered] = []
    try:
        for pagemap in sorted(images.glob("pagemap-[0-9]*.img")) if wanted else ():
            pid = int(pagemap.stem.rpartition("-")[2])
            number, runs = read_pagemap(pagemap.name, pagemap.read_bytes())
            for path, address in _places(_words(images / f"pages-{number}.img"), runs, wanted):
                found.append(Remembered(pid, address, path, wanted[path]))
                if len(found) > _MOST_PLACES:
                    raise untrusted("has memory full of the numbers of a file", f"those of {path}")
    except (ValueError, FileNotFoundError) as error:
        raise untrusted("has images of memory that do not fit together", str(error)) from error
    return found


def _is_telling(numbers: FileNumbers) -> bool:
    """Not as small as counts are: those of a file in memory, say. And none that no file has."""
    is_small = numbers.device < _SMALL_DEVICE and numbers.inode < _SMALL_INODE
    return 0 < numbers.device < 1 << 64 and 0 < numbers.inode < 1 << 64 and not is_small


def _words(pages: Path) -> Words:
    """Of a page file, in its order, mapped."""
    return np.memmap(pages, "<u8", "r") if pages.stat().st_size else np.empty(0, "<u8")


def _places(
    words: Words, runs: Sequence[Run], wanted: Mapping[str, FileNumbers]
) -> Iterator[tuple[str, int]]:
    """Paths with the addresses of their pairs."""
    ends = list(accumulate(pages for _, pages in runs))
    for begin in range(0, len(words), _AT_ONCE):
        part = words[begin : begin + _AT_ONCE + 1]  # a pair may be on both sides of the border
        for path, one in wanted.items():
            for place in np.flatnonzero((part[1:] == one.inode) & (part[:-1] == one.device)).tolist():
                device, inode = (_address(begin + place + word, runs, ends) for word in range(2))
                if device is not None and inode == device + _WORD:
                    yield path, device


def _address(word: int, runs: Sequence[Run], ends: Sequence[int]) -> int | None:
    page, within = divmod(word, _WORDS)
    index = bisect_right(ends, page)
    if index == len(runs):
        return None
    first, pages = runs[index]
    return (first + page - (ends[index] - pages) << PAGE_SHIFT) + within * _WORD


def correct_numbers(pids: Iterable[int], remembered: Sequence[Remembered]) -> None:
    """Write what the branch's files have there; the processes are stopped, with their files open.

    A place is left as it is where it does not hold the numbers, or the process does not have the file open. A process that has
    just been killed is passed over.

    Raises:
        OSError: memory cannot be written.
    """
    places: dict[int, list[Remembered]] = {}
    for one in remembered:
        places.setdefault(one.pid, []).append(one)
    for pid in pids if places else ():
        # The last of its numbers is that in its own PID namespace, as in the commit.
        for number in procfs.namespace_pids(pid)[-1:]:
            if number in places:
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    _correct(pid, places[number], _open_files(pid))


def _correct(pid: int, places: Iterable[Remembered], opened: Mapping[str, FileNumbers]) -> None:
    memory = os.open(f"/proc/{pid}/mem", os.O_RDWR | os.O_CLOEXEC)
    try:
        for place in places:
            now = opened.get(place.path)
            if now is not None and os.pread(memory, _PAIR.size, place.address) == _PAIR.pack(*place.numbers):
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

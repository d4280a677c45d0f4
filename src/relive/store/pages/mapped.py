"""Page files mapped into memory. Whoever goes through one gives back what is behind: a process holds a window of it, not all.

What was given back comes again from its file, mostly from the page cache: that costs a page fault for every sixteen pages or so.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from relive.kernel import libc
from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages
from relive.store.pages.size import PAGE, page_count

__all__ = ["WINDOW", "MappedPages", "count_as_much", "hash_pages", "map_pages", "map_runs", "unmap_pages"]

WINDOW = 2048  # [pages] 8 MiB
_MMAP, _MAP_FIXED = 9, 0x10
_FEW = 4  # so many times as late where there are few


def map_pages(file: int) -> Pages:
    """The pages of an open file, mapped for reading; the last one filled up with zeros. It may be unlinked and closed."""
    size = os.fstat(file).st_size
    if size == 0:
        return np.empty((0, WORDS), np.uint64)
    if size % PAGE:
        filled = os.pread(file, size, 0).ljust(page_count(size) * PAGE, b"\0")
        return np.frombuffer(filled, np.uint64).reshape(-1, WORDS)
    return np.frombuffer(mmap.mmap(file, size, prot=mmap.PROT_READ), np.uint64).reshape(-1, WORDS)


def map_runs(files: Sequence[int], runs: Sequence[tuple[int, int, int]]) -> Pages:
    """Runs of pages of several open files, mapped for reading one behind the other: which file, first page in it, how many.

    Raises:
        OSError: ENOMEM where they are more than this process may have mappings (``vm.max_map_count``).
    """
    total = sum(count for _, _, count in runs)
    if total == 0:
        return np.empty((0, WORDS), np.uint64)
    whole = mmap.mmap(-1, total * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
    pages = np.frombuffer(whole, np.uint64).reshape(-1, WORDS)
    at = _address(pages)
    for file, first, count in runs:
        how = mmap.MAP_PRIVATE | _MAP_FIXED
        libc.syscall(_MMAP, at, count * PAGE, mmap.PROT_READ, how, files[file], first * PAGE)
        at += count * PAGE
    return pages


def unmap_pages(pages: Pages | npt.NDArray[np.uint8]) -> None:
    """Have pages of ``map_pages``, or a slice of them, count as this process's memory no more; they can be read as before.

    Nothing happens to pages that are not mapped.
    """
    whole: npt.NDArray[Any] = pages
    holder: object = pages.base
    while isinstance(holder, np.ndarray):
        whole, holder = holder, holder.base
    mapped = holder.obj if isinstance(holder, memoryview) else holder
    if isinstance(mapped, mmap.mmap) and pages.nbytes:
        mapped.madvise(mmap.MADV_DONTNEED, _address(pages) - _address(whole), pages.nbytes)


def count_as_much(used: int, pages: Pages, most: int) -> bool:
    """Whether pages should be unmapped by now (``unmap_pages``).

    Where all of them are not many, less is won by it than it takes to have them in again, so it is done less often.

    Args:
        used: pages that were read or written since the last time.
        most: so many may count as this process's memory.
    """
    return used > most * (1 if len(pages) > most else _FEW)


def _address(pages: npt.NDArray[Any]) -> int:
    address: int = pages.__array_interface__["data"][0]
    return address


def hash_pages(pages: Pages, size: int) -> str:
    """BLAKE3 of their first ``size`` bytes, 64 hexadecimal digits. They are given back (``unmap_pages``)."""
    hashing = blake3()  # in one thread: a pool of threads would not survive fork()
    for begin in range(0, len(pages), WINDOW):
        window = pages[begin : begin + WINDOW]
        hashing.update(window.reshape(-1).view(np.uint8).data[: max(0, size - begin * PAGE)])
        unmap_pages(window)
    return hashing.hexdigest()


class MappedPages:
    """The pages of one page file, in its order, as ``map_pages`` gives them.

    Attributes:
        at_once: so many are best looked at together: they stay in the processor's cache from the first look to the last.
    """

    __slots__ = ("_pages",)
    at_once: ClassVar[int] = 128

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def __len__(self) -> int:
        return len(self._pages)

    def __getitem__(self, numbers: Numbers) -> Pages:
        """A copy of some."""
        return self._pages[numbers]

    def some(self, numbers: Numbers | Flags) -> MappedPages:
        """A copy of some."""
        return MappedPages(self._pages[numbers])

    def have_content(self) -> Flags:
        """Of each whether it holds anything but zeros."""
        return np.asarray(self._pages.any(axis=1))

    def window(self, begin: int, end: int) -> Pages:
        """Some that follow each other; not to be written to."""
        return self._pages[begin:end]

    def hashed(self, size: int, _before: object) -> str:
        """BLAKE3 of their first ``size`` bytes, 64 hexadecimal digits. They are given back."""
        return hash_pages(self._pages, size)

    def release(self, begin: int = 0, end: int | None = None) -> None:
        """Have some count as this process's memory no more (``unmap_pages``)."""
        unmap_pages(self._pages[begin:end])

"""Full versions of pages that are kept as changed words, so that the next ones are found without reading packs.

They lie in a file without a name, mapped into memory: the system may write it to disk when memory is short, and it is gone
with the process.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path

import numpy as np

from relive.store.pages.mapped import count_as_much, unmap_pages
from relive.store.pages.page_diff import WORDS, Numbers, Pages
from relive.store.pages.size import PAGE

__all__ = ["XorBases"]

_FIRST = 64  # [pages] of the file at first; it doubles
_RELEASE_AFTER = 2048  # [pages] added or read, of which so many may count as this process's memory


class XorBases:
    """Pages by number, counted from 0. They are only added, until all are thrown away together."""

    def __init__(self, directory: Path) -> None:
        """``directory`` lies on the file system that takes them."""
        self.directory = directory
        self._file: int | None = None
        self._pages: Pages = np.empty((0, WORDS), np.uint64)
        self._used = 0
        self._touched = 0  # since the memory was released

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def add(self, pages: Pages) -> Numbers:
        """Append; returns their numbers. Raises OSError when the disk is full."""
        self._touched += len(pages)
        first, used = self._used, self._used + len(pages)
        if used > len(self._pages):
            self._grow(max(_FIRST, 2 * len(self._pages), used))
        # By mapped memory each page that is new in the file would cost five times as much, for a fault of its own.
        rest, at = np.ascontiguousarray(pages).reshape(-1).view(np.uint8).data, first * PAGE
        while rest:
            assert self._file is not None
            count = os.pwrite(self._file, rest, at)
            rest, at = rest[count:], at + count
        self._used = used  # not before: what could not be written has no number
        return np.arange(first, used, dtype=np.int64)

    def get(self, numbers: Numbers) -> Pages:
        """A copy of pages."""
        self._touched += len(numbers)
        return self._pages[numbers]

    def held(self, count: int) -> Pages:
        """All of them, in the rows of their numbers, of which so many are going to be read; not to be written to."""
        self._touched += count
        return self._pages

    def release_memory(self) -> None:
        """Have them count as this process's memory no more, when it has become much, until they are used again."""
        if count_as_much(self._touched, self._pages, _RELEASE_AFTER):
            self._touched = 0
            unmap_pages(self._pages)

    def _grow(self, pages: int) -> None:
        if self._file is None:
            self._file, path = tempfile.mkstemp(prefix="bases.", dir=self.directory)
            os.unlink(path)  # noqa: PTH108 - mkstemp gives text
        # Else writing to memory would end the process with SIGBUS when the disk is full.
        os.posix_fallocate(self._file, 0, pages * PAGE)
        whole = mmap.mmap(self._file, pages * PAGE)
        self._pages = np.frombuffer(whole, np.uint64).reshape(-1, WORDS)

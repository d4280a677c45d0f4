"""Pages that the commits of one service share until they lie in packs: each in a slot, which is not written to while it is held.

So two pages in the same slot are the same page, and a commit on top of another is only the slots of its pages: those that did not
change are neither copied nor compared again. A commit that is never stored does no harm to the next one, which holds its own.

The slots are in a file without a name, mapped into memory: the system may write it to disk when memory is short, and it is gone
with the process.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from itertools import pairwise
from pathlib import Path

import numpy as np

from relive.store.pages.mapped import unmap_pages
from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages
from relive.store.pages.page_tree import PageTree, load_library, same_pages
from relive.store.pages.size import PAGE

__all__ = ["PagePool", "PooledPages"]

_FIRST = 256  # [pages] of the file at least
_GROWTH = 4  # it grows by one part in so many at least, so that free slots are not looked for at each commit
_RELEASE_AFTER = 4096  # [pages] read or written, of which so many may count as this process's memory


class PagePool:
    """One thread adds pages; others may read meanwhile what is held."""

    def __init__(self, directory: Path) -> None:
        """``directory`` lies on the file system that takes them; raises ToolMissing where what hashes pages is not built."""
        self._file: int | None = None
        load_library()
        self._directory = directory
        self._pages: Pages = np.empty((0, WORDS), np.uint64)
        self._free: Numbers = np.empty(0, np.int64)
        self._held: weakref.WeakSet[PooledPages] = weakref.WeakSet()
        self._used = 0

    def __del__(self) -> None:
        if self._file is not None:
            os.close(self._file)

    def __len__(self) -> int:
        """Slots there are, free or not."""
        return len(self._pages)

    def add(self, file: int, offsets: Numbers) -> Numbers:
        """Copy pages that lie at these bytes of an open file; returns their slots, which are to be held before the next call.

        Raises:
            OSError: the file ends before, or the disk is full.
        """
        slots = self._take(len(offsets))
        for first, end in _adjacent(offsets, slots):
            self._fill(file, int(offsets[first]), int(slots[first]), end - first)
        return slots

    def add_changed(self, file: int, offsets: Numbers, before: Numbers) -> Numbers:
        """As ``add``, but a page that is as the one in its slot of before stays in that; of many that are written few change.

        Args:
            before: held slots; -1 of a page that was in none.

        Raises:
            OSError: as ``add``.
        """
        slots = before.copy()
        is_new = ~self._is_same(file, offsets, before)
        slots[is_new] = self.add(file, offsets[is_new])
        return slots

    def _is_same(self, file: int, offsets: Numbers, before: Numbers) -> Flags:
        size = os.fstat(file).st_size
        if not len(offsets) or int(offsets.max()) + PAGE > size:  # of what is missing there ``add`` tells
            return np.zeros(len(offsets), np.bool_)
        with mmap.mmap(file, size, prot=mmap.PROT_READ) as whole:
            self._used += len(offsets)
            copied = np.frombuffer(whole, np.uint8)
            same = same_pages(copied, offsets, self._pages, before)
            del copied  # else the mapping cannot be closed
        return same

    def hold(self, slots: Numbers) -> PooledPages:
        """Pages in their order, whose slots keep what they have as long as this is alive."""
        held = PooledPages(self, slots)
        self._held.add(held)
        return held

    def read(self, slots: Numbers) -> Pages:
        """A copy of pages."""
        self._used += len(slots)
        return self._pages[slots]

    def tree(self, held: PooledPages, before: PooledPages | None) -> PageTree:
        """Of the file of these pages.

        Args:
            before: others of this pool whose tree is known.
        """
        if before is None or before.tree is None:
            return PageTree.of(self._pages, held.slots)
        both = min(len(before), len(held))
        changed = np.ones(len(held), np.bool_)
        np.not_equal(before.slots[:both], held.slots[:both], out=changed[:both])
        return before.tree.after(self._pages, held.slots, np.flatnonzero(changed))

    def release_memory(self) -> None:
        """Have the pages count as this process's memory no more, when it has become much, until they are used again."""
        if self._used > _RELEASE_AFTER:
            self._used = 0
            unmap_pages(self._pages)

    def _take(self, count: int) -> Numbers:
        if count > len(self._free):
            self._collect()
        if count > len(self._free):
            self._grow(count - len(self._free))
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def _collect(self) -> None:
        is_free = np.ones(len(self._pages), np.bool_)
        for held in list(self._held):
            is_free[held.slots] = False
        self._free = np.flatnonzero(is_free)

    def _grow(self, least: int) -> None:
        before = len(self._pages)
        pages = before + max(_FIRST, least, before // _GROWTH)
        if self._file is None:
            self._file, path = tempfile.mkstemp(prefix="pool.", dir=self._directory)
            os.unlink(path)  # noqa: PTH108 - mkstemp gives text
        # Else writing to memory would end the process with SIGBUS when the disk is full.
        os.posix_fallocate(self._file, 0, pages * PAGE)
        whole = mmap.mmap(self._file, pages * PAGE)
        self._pages = np.frombuffer(whole, np.uint64).reshape(-1, WORDS)
        self._free = np.concatenate([self._free, np.arange(before, pages, dtype=np.int64)])

    def _fill(self, file: int, offset: int, slot: int, count: int) -> None:
        self._used += count
        rest = self._pages[slot : slot + count].reshape(-1).view(np.uint8).data
        while rest:
            done = os.preadv(file, [rest], offset)
            if done == 0:
                raise OSError(f"a copied page is missing at byte {offset}")
            rest, offset = rest[done:], offset + done


class PooledPages:
    """The pages of one page file, in its order; made by ``PagePool.hold``."""

    __slots__ = ("__weakref__", "pool", "slots", "tree")

    def __init__(self, pool: PagePool, slots: Numbers) -> None:
        self.pool = pool
        self.slots = slots
        self.tree: PageTree | None = None

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, numbers: Numbers) -> Pages:
        """A copy of some."""
        return self.pool.read(self.slots[numbers])

    def window(self, begin: int, end: int) -> Pages:
        """Some that follow each other; not to be written to."""
        return self.pool.read(self.slots[begin:end])

    def hashed(self, size: int, before: object) -> str:
        """BLAKE3 of all of them, which are ``size`` bytes, 64 hexadecimal digits.

        Args:
            before: pages of which many may be the same; those that were hashed are not hashed again.
        """
        assert size == len(self) * PAGE
        known = before if isinstance(before, PooledPages) and before.pool is self.pool else None
        self.tree = self.pool.tree(self, known)
        return self.tree.hash

    def release(self, _begin: int = 0, _end: int | None = None) -> None:
        """Have them count as this process's memory no more; they can be read as before."""
        self.pool.release_memory()


def _adjacent(offsets: Numbers, slots: Numbers) -> list[tuple[int, int]]:
    """Indices of runs that lie one after the other in the file and in the slots."""
    if not len(slots):
        return []
    breaks = np.flatnonzero((np.diff(offsets) != PAGE) | (np.diff(slots) != 1)) + 1
    return list(pairwise([0, *breaks.tolist(), len(slots)]))

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
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from relive.store.pages.mapped import WINDOW, count_as_much, unmap_pages
from relive.store.pages.page_diff import WORDS, Flags, Numbers, Pages
from relive.store.pages.page_tree import (
    PageTree,
    changed_words,
    copy_pages,
    have_content,
    load_library,
    same_pages,
)
from relive.store.pages.size import PAGE
from relive.store.pages.words import ChangedWords
from relive.store.pages.xor_bases import XorBases

__all__ = ["PagePool", "PooledPages"]

_FIRST = 256  # [pages] of the file at least
_GROWTH = 4  # it grows by one part in so many at least
_SEARCH = 16  # free slots are looked for when one part of all in so many was taken: so the same few are written to again and again
_WHOLE_EVERY = 256  # [commits] all pages are hashed anew, so that what went wrong in a tree does not stay
_RELEASE_AFTER = 16384  # [pages] read or written, of which so many may count as this process's memory
_MAPPED_MOST = 16 << 20  # [bytes] of a file of copied pages whose mapping is kept

Bytes: TypeAlias = npt.NDArray[np.uint8]


class PagePool:
    """One thread adds pages; others may read meanwhile what is held."""

    def __init__(self, directory: Path) -> None:
        """``directory`` lies on the file system that takes them; raises ToolMissing where what hashes pages is not built."""
        self._file: int | None = None
        load_library()
        self._directory = directory
        self._pages: Pages = np.empty((0, WORDS), np.uint64)
        self._free: Numbers = np.empty(0, np.int64)
        self._taken = 0  # since they were looked for
        self._held: weakref.WeakSet[PooledPages] = weakref.WeakSet()
        self._used = 0
        self._last_mapped: tuple[tuple[int, int], Bytes] | None = (
            None  # which file that pages were copied from, and its bytes
        )

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
        return self._copied(self._mapped(file, offsets), offsets)

    def add_changed(self, file: int, offsets: Numbers, before: Numbers) -> Numbers:
        """As ``add``, but a page that is as the one in its slot of before stays in that; of many that are written few change.

        Args:
            before: held slots; -1 of a page that was in none.

        Raises:
            OSError: as ``add``.
        """
        copied = self._mapped(file, offsets)
        self._used += len(offsets)
        slots, is_new = before.copy(), ~same_pages(copied, offsets, self._pages, before)
        slots[is_new] = self._copied(copied, offsets[is_new])
        return slots

    def _copied(self, copied: Bytes, offsets: Numbers) -> Numbers:
        slots = self._take(len(offsets))
        self._used += len(slots)
        for begin in range(0, len(slots), WINDOW):
            some = slice(begin, begin + WINDOW)
            copy_pages(copied, offsets[some], self._pages, slots[some])
            if copied.size > _MAPPED_MOST:
                unmap_pages(copied)
        return slots

    def _mapped(self, file: int, offsets: Numbers) -> Bytes:
        """The bytes of an open file, which must not become shorter; raises OSError where one of the pages is missing in it.

        Of a small one the mapping is kept: mapping it anew for each commit would cost as much as comparing its pages.
        """
        if not len(offsets):
            return np.empty(0, np.uint8)
        about, end = os.fstat(file), int(offsets.max()) + PAGE
        if end > about.st_size:
            raise OSError(f"a copied page is missing at byte {end - PAGE}")
        which = about.st_dev, about.st_ino
        if self._last_mapped is not None:
            last, mapped = self._last_mapped
            if last == which and end <= mapped.size:
                return mapped
        mapped = np.frombuffer(mmap.mmap(file, about.st_size, prot=mmap.PROT_READ), np.uint8)
        self._last_mapped = (which, mapped) if mapped.size <= _MAPPED_MOST else None
        return mapped

    def hold(self, slots: Numbers) -> PooledPages:
        """Pages in their order, whose slots keep what they have as long as this is alive."""
        held = PooledPages(self, slots)
        self._held.add(held)
        return held

    def read(self, slots: Numbers) -> Pages:
        """A copy of pages."""
        self._used += len(slots)
        return self._pages[slots]

    def have_content(self, slots: Numbers) -> Flags:
        """Of each page whether it holds anything but zeros."""
        return have_content(self._pages, slots)

    def changed_words(
        self, slots: Numbers, before: Numbers, bases: XorBases, base_numbers: Numbers, most: int
    ) -> tuple[Numbers, ChangedWords]:
        """As ``page_tree.changed_words``; ``before``: slots, too."""
        self._used += 2 * len(slots)
        held = bases.held(len(slots))
        return changed_words(self._pages, slots, self._pages, before, held, base_numbers, most)

    def differ(self, slots: Numbers, others: Numbers) -> Flags:
        """Of each page whether it is another than the one in the other slot."""
        self._used += len(slots)
        return ~same_pages(self._pages.reshape(-1).view(np.uint8), slots * PAGE, self._pages, others)

    def tree(self, held: PooledPages, before: PooledPages | None) -> PageTree:
        """Of the file of these pages.

        Args:
            before: others of this pool. Their tree, where it is known, is taken over: it is not needed again, unless these pages
                are never stored.
        """
        tree = before.tree if before is not None else None
        if before is None or tree is None or tree.age >= _WHOLE_EVERY:
            return PageTree.of(self._pages, held.slots)
        before.tree = None
        both = min(len(before), len(held))
        changed = np.ones(len(held), np.bool_)
        np.not_equal(before.slots[:both], held.slots[:both], out=changed[:both])
        return tree.after(self._pages, held.slots, np.flatnonzero(changed))

    def release_memory(self) -> None:
        """Have the pages count as this process's memory no more, when it has become much, until they are used again."""
        if count_as_much(self._used, self._pages, _RELEASE_AFTER):
            self._used = 0
            unmap_pages(self._pages)

    def _take(self, count: int) -> Numbers:
        self._taken += count
        if count > len(self._free) or self._taken * _SEARCH > len(self._pages):
            self._collect()
            self._taken = count
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


class PooledPages:
    """The pages of one page file, in its order; made by ``PagePool.hold``.

    Attributes:
        at_once: so many are best looked at together: they are not copied for a look, so it is the call that costs.
    """

    __slots__ = ("__weakref__", "pool", "slots", "tree")
    at_once: ClassVar[int] = 512

    def __init__(self, pool: PagePool, slots: Numbers) -> None:
        self.pool = pool
        self.slots = slots
        self.tree: PageTree | None = None

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, numbers: Numbers) -> Pages:
        """A copy of some."""
        return self.pool.read(self.slots[numbers])

    def some(self, numbers: Numbers | Flags) -> PooledPages:
        """Some of them, for as long as these are held."""
        return PooledPages(self.pool, self.slots[numbers])

    def have_content(self) -> Flags:
        """Of each whether it holds anything but zeros."""
        return self.pool.have_content(self.slots)

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

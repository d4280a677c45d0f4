"""Making page files again: full versions from packs, XORs over them, and the hash of each whole file against its manifest.

Reads the placement, the frame of the index and the few that this is compressed against, of each pack the frames needed, and the
dictionaries that those are compressed against, which are of three packs at most: no long chain is followed. A page file is made
from its beginning to its end, some megabytes at a time, so that these stay in the processor's cache until they are written
(``pagesink``). Packs hold pages in the order of page files, so hardly a frame is read twice.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import numpy as np

from relive.model.commit import ImageFile
from relive.store.pages.batch import PageBatch, untrue
from relive.store.pages.compaction import dictionaries_used, packs_in
from relive.store.pages.dictionary import Dictionary
from relive.store.pages.last_index import LastIndex
from relive.store.pages.packfile import FRAME_PAGES, FrameKind
from relive.store.pages.packreader import PackReader
from relive.store.pages.packs import Packs
from relive.store.pages.page_diff import Numbers, Pages
from relive.store.pages.pagesink import PageSink, write_pages
from relive.store.pages.placement import FramePlace, Placement
from relive.store.pages.size import PAGE, page_count
from relive.store.pages.table import (
    NOWHERE,
    Dictionaries,
    PackIndex,
    PageTable,
    decode_index,
    pack_of,
)

__all__ = ["OpenPacks", "PageSource"]

_BATCH = 16 * FRAME_PAGES  # [pages] made at once


class OpenPacks:
    """Packs that tables name by their position in a list, opened when they are needed; a context manager."""

    def __init__(
        self, names: Sequence[str | None], packs: Packs, dictionaries: Dictionaries | None = None
    ) -> None:
        """Open nothing yet.

        Args:
            dictionaries: what is compressed against dictionaries.
        """
        self._names = names
        self._dictionaries: Dictionaries = dictionaries or {}
        self._packs = packs
        self._open: dict[int, PackReader] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.clear()
        self._stack.close()

    def batches(self, table: PageTable) -> Generator[PageBatch, None, None]:
        """All pages from the first to the last, in parts that are to be used in their order.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is gone or damaged or sealed.
        """
        # What the next part needs is read and checked in a thread while this one is worked on.
        with ThreadPoolExecutor(1) as pool:
            batch: PageBatch | None = None
            ahead: Future[PageBatch] | None = None
            for begin in range(0, len(table.full), _BATCH):
                part = PageTable(table.full[begin : begin + _BATCH], table.xor[begin : begin + _BATCH])
                batch = PageBatch(part, self._reader, batch)
                found, ahead = ahead, pool.submit(batch.fetch)
                if found is not None:
                    yield found.result()
            if ahead is not None:
                yield ahead.result()

    def _reader(self, position: int) -> PackReader:
        found = self._open.get(position)
        if found is None:
            name = self._names[position] if 0 <= position < len(self._names) else None
            if name is None:
                raise untrue("it names a pack that its placement does not list")
            found = self._open[position] = self._stack.enter_context(PackReader(self._packs, name))
            # The packs of the index are opened before it can say which dictionaries there are.
            found.dictionary_of = partial(self.dictionary_for, position)
        return found

    def dictionary_for(self, position: int, what: FrameKind) -> Dictionary:
        """What full pages (PAGES) or changed words (WORDS) of a pack are compressed against.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: the pack that has it is gone or damaged or sealed, or none is named.
        """
        pack = self._dictionaries.get((position, what))
        if pack is None:
            raise untrue("it does not name the dictionary that pages of it need")
        if pack > position:  # so that none continues itself, on whatever way
            raise untrue("it names a dictionary that is newer than what needs it")
        return self.own_dictionary(pack, what)

    def own_dictionary(self, position: int, what: FrameKind) -> Dictionary:
        """The dictionary that a pack has; raises as ``dictionary_for``."""
        return self._reader(position).own_dictionary(what)

    def descriptors(self) -> list[int]:
        """The packs that are open."""
        return [reader.descriptor for reader in self._open.values()]

    def pack_names(self) -> Sequence[str | None]:
        """The list by whose positions tables name packs."""
        return self._names

    def open_packs(self, table: PageTable) -> None:
        """Open every pack that pages of a table need, so that what happens to the store meanwhile does not matter.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing: one cannot be opened.
        """
        for places in (table.full, table.xor):
            positions = pack_of(places)
            if not -1 <= positions.min(initial=-1) <= positions.max(initial=-1) < len(self._names):
                raise untrue("it names a pack that its placement does not list")
        packs = packs_in(table)
        for position in {*packs.full, *packs.xor} - {NOWHERE}:
            self._reader(position)
        for position in dictionaries_used([packs], self._dictionaries).values():
            self._reader(position)

    def read(self, table: PageTable, numbers: Numbers) -> Pages:
        """Some pages of a table, checked, in the order of their numbers.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is gone or damaged or sealed.
        """
        batch = self.batch(PageTable(table.full[numbers], table.xor[numbers]))
        return batch.apply_xor(batch.full())

    def batch(self, table: PageTable, before: PageBatch | None = None) -> PageBatch:
        """The pages of a table, to be made (``PageBatch``). Safe in several threads once all their packs are open."""
        return PageBatch(table, self._reader, before)


class PageSource(OpenPacks):
    """The packs of one placement, open for reading; a context manager.

    Attributes:
        index: the commit's index.
    """

    def __init__(self, placement: Placement, packs: Packs, last: LastIndex | None = None) -> None:
        """Open nothing yet.

        Args:
            last: has the index perhaps, and is given it else.
        """
        super().__init__(placement.packs, packs)
        self._placement = placement
        self._last = last or LastIndex()

    def __enter__(self) -> Self:
        try:
            known = self._last.get(self._placement)
            self.index: PackIndex = known or decode_index(self.indexes[-1])
            self._last.put(self._placement, self.index)
            self._dictionaries = self.index.dictionaries
        except BaseException:
            self._stack.close()
            raise
        return self

    @cached_property
    def indexes(self) -> list[bytes]:
        """Undecoded: what its index is compressed against, the first of which stands alone, and itself.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: they cannot be read.
        """
        found: list[bytes] = []
        for place in (*self._placement.bases, self._placement.index):
            found.append(self._blob(place, found[-1] if found else None))
        return found

    def _blob(self, place: FramePlace, dictionary: bytes | None) -> bytes:
        return self._reader(place.pack).blob(place.frame, dictionary)

    def table_of(self, image: ImageFile) -> PageTable:
        """The table of a page file; raises ObjectCorrupt where there is none of its length."""
        tables: Mapping[str, PageTable] = self.index.tables
        table = tables.get(image.name)
        if table is None or len(table.full) != page_count(image.size):
            raise untrue(f"it does not fit the image {image.name!r}")
        return table

    def write(self, image: ImageFile, path: Path) -> None:
        """Make a page file, new, and check it.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is gone or damaged or sealed, or the result is not
                what the manifest says; the file is then of no use.
            OSError: the disk is full.
        """
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            self._make(image, file)
            os.fchmod(file, 0o400)  # it may be shared by several branches
        finally:
            os.close(file)

    def check(self, image: ImageFile) -> None:
        """Raises as ``write`` where the page file could not be made; it is not kept."""
        self._make(image, None)

    def _make(self, image: ImageFile, file: int | None) -> None:
        table = self.table_of(image)
        # Closed, so that its thread ends here also after an error.
        with PageSink(file, image) as sink, closing(self.batches(table)) as batches:
            for batch in batches:
                sink.add(batch.apply_xor(batch.full()))
            sink.check()

    def write_some(self, image: ImageFile, path: Path, numbers: Numbers) -> None:
        """Make a page file that has only some of its pages, new; the others are holes.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is gone or damaged or sealed.
            OSError: the disk is full.
        """
        table = self.table_of(image)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, page_count(image.size) * PAGE)
            for begin in range(0, len(numbers), _BATCH):
                some = numbers[begin : begin + _BATCH]
                _write_runs(file, some, self.read(table, some))
            os.ftruncate(file, image.size)
        finally:
            os.close(file)


def _write_runs(file: int, numbers: Numbers, pages: Pages) -> None:
    """Write pages to their places in a file; those that follow each other together."""
    begin = 0
    for end in np.append(np.flatnonzero(np.diff(numbers) != 1) + 1, len(numbers)).tolist():
        if begin < end:
            write_pages(file, int(numbers[begin]) * PAGE, pages[begin:end])
        begin = end

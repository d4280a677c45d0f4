"""Making page files again: full versions from packs, XORs over them, and the hash of each whole file against its manifest.

Reads the placement, the frame of the index and the one it is compressed against, and of each pack the frames needed: no
chain is followed.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from blake3 import blake3

from relive.errors import ObjectCorrupt
from relive.model.commit import ImageFile
from relive.store.pages.differ import WORDS, Numbers, Pages
from relive.store.pages.packfile import FRAME_PAGES
from relive.store.pages.packreader import PackReader
from relive.store.pages.packs import Packs
from relive.store.pages.placement import FramePlace, Placement
from relive.store.pages.runs import PAGE, page_count
from relive.store.pages.table import NOWHERE, Index, Table, decode_index, pack_of, slot_of

__all__ = ["PageSource", "check_pages", "fresh_pages"]

_Put = Callable[[Numbers, Pages], None]


class PageSource:
    """The packs of one placement, open for reading; a context manager.

    Attributes:
        index: the commit's index.
        key_bytes: the index, undecoded, that those of the next commits are compressed against.
    """

    def __init__(self, placement: Placement, packs: Packs) -> None:
        self._placement = placement
        self._packs = packs
        self._open: dict[int, PackReader] = {}
        self._stack = ExitStack()

    def __enter__(self) -> PageSource:
        try:
            base = self._placement.base
            dictionary = None if base is None else self._blob(base, None)
            data = self._blob(self._placement.index, dictionary)
            self.key_bytes: bytes = data if dictionary is None else dictionary
            self.index: Index = decode_index(data)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def read_full(self, table: Table, file: int) -> None:
        """Write the full versions of pages to a file that is all zeros."""

        def put(numbers: Numbers, found: Pages) -> None:
            # Writing is several times faster than filling mapped pages, each of which would be a fault.
            _write_runs(file, numbers, found)

        self._each(table.full, put)

    def apply_xor(self, table: Table, pages: Pages) -> None:
        """Turn full versions into the commit's pages."""

        def put(numbers: Numbers, found: Pages) -> None:
            pages[numbers] ^= found

        self._each(table.xor, put)

    def _each(self, places: Numbers, put: _Put) -> None:
        """Hand the pages at these places over, frame by frame, with their positions in ``places``."""
        numbers = np.flatnonzero(places != NOWHERE)
        wanted = places[numbers]
        if np.any(wanted[1:] < wanted[:-1]):
            order = np.argsort(wanted, kind="stable")
            numbers, wanted = numbers[order], wanted[order]
        frames_of_all = (
            wanted // FRAME_PAGES
        )  # those of one pack follow those of another: 2**32 is a multiple
        frames, begins = np.unique(frames_of_all, return_index=True)
        ends = np.append(begins[1:], len(wanted))
        packs = pack_of(frames * FRAME_PAGES)
        for pack in np.unique(packs).tolist():
            of_pack = np.flatnonzero(packs == pack)
            reader = self._reader(pack)
            in_pack = (slot_of(frames[of_pack] * FRAME_PAGES) // FRAME_PAGES).tolist()
            for at, (_, found) in zip(of_pack.tolist(), reader.page_frames(in_pack), strict=True):
                part = slice(begins[at], ends[at])
                rows = slot_of(wanted[part]) % FRAME_PAGES
                if rows[-1] >= len(found):
                    raise _untrue("it names a slot that its pack does not have")
                put(numbers[part], found if len(rows) == len(found) else found[rows])

    def _reader(self, position: int) -> PackReader:
        found = self._open.get(position)
        if found is None:
            names: Sequence[str | None] = self._placement.packs
            name = names[position] if 0 <= position < len(names) else None
            if name is None:
                raise _untrue("it names a pack that its placement does not list")
            found = self._open[position] = self._stack.enter_context(PackReader(self._packs, name))
        return found

    def _blob(self, place: FramePlace, dictionary: bytes | None) -> bytes:
        return self._reader(place.pack).blob(place.frame, dictionary)

    def descriptors(self) -> list[int]:
        """The packs that are open."""
        return [reader.descriptor for reader in self._open.values()]

    def open_packs(self, table: Table) -> None:
        """Open every pack that pages of a table lie in, so that what happens to the store meanwhile does not matter.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing: one cannot be opened.
        """
        for places in (table.full, table.xor):
            for position in np.unique(pack_of(places[places != NOWHERE])).tolist():
                self._reader(position)

    def read(self, table: Table, numbers: Numbers) -> Pages:
        """Some pages of a table, checked, in the order of their numbers.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is gone or damaged or sealed.
        """
        pages = np.zeros((len(numbers), WORDS), np.uint64)

        def put(positions: Numbers, found: Pages) -> None:
            pages[positions] = found

        self._each(table.full[numbers], put)
        self.apply_xor(Table(table.full[numbers], table.xor[numbers]), pages)
        return pages

    def table_of(self, image: ImageFile) -> Table:
        """The table of a page file; raises ObjectCorrupt where there is none of its length."""
        tables: Mapping[str, Table] = self.index.tables
        table = tables.get(image.name)
        if table is None or len(table.full) != page_count(image.size):
            raise _untrue(f"it does not fit the image {image.name!r}")
        return table

    def write(self, image: ImageFile, path: Path) -> None:
        """Make a page file, new, and check it.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is gone or damaged or sealed, or the result is not
                what the manifest says; the file is then of no use.
            OSError: the disk is full.
        """
        table = self.table_of(image)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            whole = fresh_pages(file, len(table.full))
            self.read_full(table, file)
            self.apply_xor(table, whole)
            check_pages(image, whole)
            os.ftruncate(file, image.size)
            os.fchmod(file, 0o400)  # it may be shared by several branches
        finally:
            os.close(file)

    def write_some(self, image: ImageFile, path: Path, numbers: Numbers) -> None:
        """Make a page file that has only some of its pages, new; the others are holes.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is gone or damaged or sealed.
            OSError: the disk is full.
        """
        pages = self.read(self.table_of(image), numbers)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(file, page_count(image.size) * PAGE)
            _write_runs(file, numbers, pages)
            os.ftruncate(file, image.size)
        finally:
            os.close(file)


def fresh_pages(file: int, pages: int) -> Pages:
    """So many pages of an empty file, mapped; what is written to them is in the file."""
    if pages == 0:
        return np.empty((0, WORDS), np.uint64)
    # Else writing to memory would end the process with SIGBUS when the disk is full.
    os.posix_fallocate(file, 0, pages * PAGE)
    return np.frombuffer(mmap.mmap(file, pages * PAGE), np.uint64).reshape(-1, WORDS)


def _write_runs(file: int, numbers: Numbers, pages: Pages) -> None:
    """Write pages to their places in a file; those that follow each other together."""
    begin = 0
    for end in np.append(np.flatnonzero(np.diff(numbers) != 1) + 1, len(numbers)).tolist():
        if begin < end:
            _write_at(file, int(numbers[begin]) * PAGE, pages[begin:end])
        begin = end


def _write_at(file: int, offset: int, pages: Pages) -> None:
    """Write pages at a byte of a file."""
    rest = pages.view(np.uint8).reshape(-1).data
    while rest:
        written = os.pwrite(file, rest, offset)
        rest, offset = rest[written:], offset + written


def check_pages(image: ImageFile, pages: Pages) -> None:
    """Raises ObjectCorrupt where the first ``image.size`` bytes are not what the manifest says."""
    # One thread: a pool of threads would not survive fork().
    if blake3(pages.view(np.uint8).reshape(-1).data[: image.size]).hexdigest() != image.object:
        raise ObjectCorrupt(
            f"image {image.name} is damaged",
            cause="what its packs hold does not match the manifest",
            remedy="use another commit (`relive log`)",
        )


def _untrue(cause: str) -> ObjectCorrupt:
    return ObjectCorrupt(
        "the commit's index is damaged", cause=cause, remedy="use another commit (`relive log`)"
    )

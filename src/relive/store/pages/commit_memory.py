"""All memory that a commit holds, for who reads it: page file by page file, from its packs, without laying anything out.

Two commits are compared by where their pages lie: what lies at the same place is the same, and is not read.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Self

import numpy as np

from relive.model.commit import ImageFile
from relive.store.pages.materialize import PageSource
from relive.store.pages.page_diff import Flags, Numbers, Pages, changed_pages
from relive.store.pages.runs import PageFile, match, page_files
from relive.store.pages.table import NOWHERE, pack_of, slot_of

__all__ = ["CommitMemory", "PageChanges", "compare"]

_AT_ONCE = 2048  # [pages] compared at once, of both commits


class CommitMemory:
    """The pages of a commit, with all packs open that they need; a context manager. Use it from one thread.

    Attributes:
        small: the images that hold no pages, by name.
        files: the page files, by the name of the pagemap that describes each.
    """

    def __init__(self, source: PageSource, images: Sequence[ImageFile], small: Mapping[str, bytes]) -> None:
        """Takes over a source that is entered already.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing: a pack cannot be opened.
        """
        self._source = source
        with ExitStack() as stack:
            stack.push(source)
            by_name = {image.name: image for image in images if image.name.startswith("pages-")}
            sizes = {name: image.size for name, image in by_name.items()}
            self.small = small
            self.files: dict[str, PageFile] = {one.key: one for one in page_files(small, sizes)}
            self._tables = {key: source.table_of(by_name[one.name]) for key, one in self.files.items()}
            for table in self._tables.values():
                source.open_packs(table)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def stream(self, key: str) -> Generator[Pages, None, None]:
        """All pages of a file in their order, some megabytes at a time; close it if it is not read to its end.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is damaged or sealed.
        """
        with closing(self._source.batches(self._tables[key])) as batches:
            for batch in batches:
                yield batch.apply_xor(batch.full())

    def read(self, key: str, numbers: Numbers) -> Pages:
        """Some pages of a file, by their positions in it; raises as ``stream``."""
        return self._source.read(self._tables[key], numbers)

    def places(self, key: str, packs: dict[str, int]) -> tuple[Numbers, Numbers]:
        """Where each page lies, in numbers that hold for all commits with the same ``packs``, which are added to."""
        table = self._tables[key]
        return _global(table.full, self._source, packs), _global(table.xor, self._source, packs)


def _global(places: Numbers, source: PageSource, packs: dict[str, int]) -> Numbers:
    names = source.pack_names()
    known = np.array([packs.setdefault(name or "", len(packs)) for name in names] or [0], np.int64)
    found = (known[np.clip(pack_of(places), 0, None)] << 32) | slot_of(places)
    return np.where(places == NOWHERE, np.int64(NOWHERE), found)


@dataclass(frozen=True, slots=True)
class PageChanges:
    """What differs between the page files of two commits that have the same key.

    Attributes:
        differ: addresses / 4096 of pages that both have, with other bytes.
        compared: pages that had to be read, of each of both, since they lie at different places.
    """

    differ: Numbers
    compared: int


def compare(ours: CommitMemory, theirs: CommitMemory, key: str) -> PageChanges:
    """The pages of a file whose bytes are others in another commit, exactly; both have a file of this key.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: as ``CommitMemory.stream``.
    """
    packs: dict[str, int] = {}
    our_places, their_places = ours.places(key, packs), theirs.places(key, packs)
    matches = match(ours.files[key].runs, theirs.files[key].runs)
    if not matches:
        return PageChanges(np.empty(0, np.int64), 0)
    mine = np.concatenate([np.arange(at, at + pages) for at, _, pages in matches])
    other = np.concatenate([np.arange(at, at + pages) for _, at, pages in matches])
    same = (our_places[0][mine] == their_places[0][other]) & (our_places[1][mine] == their_places[1][other])
    mine, other = mine[~same], other[~same]
    differs: Flags = np.zeros(len(mine), np.bool_)
    for begin in range(0, len(mine), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        differs[part] = changed_pages(ours.read(key, mine[part]), theirs.read(key, other[part]))
    return PageChanges(_addresses(ours.files[key])[mine[differs]], len(mine))


def _addresses(file: PageFile) -> Numbers:
    """Of each page of a file, in its order."""
    parts = [np.arange(first, first + pages, dtype=np.int64) for first, pages in file.runs]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)

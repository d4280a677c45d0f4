"""The pages of a commit by process and address, read from its packs when they are asked for."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from relive.errors import ObjectCorrupt
from relive.images.pagemap import Run, read_lazy_runs
from relive.model.commit import ImageFile
from relive.store.pages.materialize import PageSource
from relive.store.pages.packfile import FRAME_PAGES
from relive.store.pages.page_diff import Numbers, Pages
from relive.store.pages.readahead import ReadAhead
from relive.store.pages.runs import PageFile, page_files
from relive.store.pages.size import PAGE
from relive.store.pages.table import PageTable

__all__ = ["CommitPages", "Content", "ProcessPages", "lazy_page_numbers"]

_BLOCK = FRAME_PAGES  # read together: pages that follow each other mostly lie in one frame, which is read as a whole
_BLOCKS_KEPT = 16
# Of a process; that of shared memory is called pagemap-shmem-N.img, and nothing of it can come later.
_OF_PROCESS = re.compile(r"pagemap-(\d+)\.img")


@dataclass(frozen=True, slots=True)
class Content:
    """What pages hold; it stays in memory as long as this value."""

    pages: Pages

    def address(self, row: int) -> int:
        """Where in this process's memory the content of a page begins."""
        return int(self.pages.ctypes.data) + row * PAGE


class ProcessPages:
    """The pages of one process that CRIU can restore later than the process. Use it from one thread.

    Attributes:
        runs: first page (its address / 4096) and number of pages of each, in the order of the page file.
    """

    def __init__(self, source: PageSource, file: PageFile, lazy: list[bool], ahead: ReadAhead) -> None:
        self._source = source
        self._table = ahead.table
        self._ahead = ahead
        placed, position = [], 0
        for (first, pages), is_lazy in zip(file.runs, lazy, strict=True):
            if is_lazy:
                placed.append((first, pages, position))
            position += pages
        self.runs: list[Run] = [(first, pages) for first, pages, _ in placed]
        self._placed = sorted(placed)
        self._blocks: OrderedDict[int, Pages] = OrderedDict()

    def read(self, first: int, pages: int) -> Content:
        """Pages that follow each other in one run, checked; for who waits for them.

        Raises:
            ObjectCorrupt: a pack is damaged.
        """
        number = self._number(first, pages)
        parts = self._ahead.what_is_there(number, pages)
        if parts is None:
            last = (number + pages - 1) // _BLOCK
            blocks = [self._block(block) for block in range(number // _BLOCK, last + 1)]
            parts = [_joined(blocks)[number % _BLOCK :][:pages]]
        return Content(_joined(parts))

    def read_on(self, first: int, pages: int) -> Content | None:
        """The same for who goes on from there: what follows is read ahead, in a thread of this process. None: not yet.

        Raises:
            ObjectCorrupt: a pack is damaged.
        """
        if not self._ahead.begin():
            return None
        return Content(_joined(self._ahead.read(self._number(first, pages), pages)))

    def rest(self) -> None:
        """Nobody goes on for now: keep no pages in memory for that."""
        self._ahead.rest()

    def gather(self, firsts: Sequence[int], window: int) -> list[tuple[int, Content]]:
        """Several windows at once, checked, each from a page to the end of its run or its aligned window: (first page, content).

        Pages that are in no run are left out.

        Raises:
            ObjectCorrupt: a pack is damaged.
        """
        spans = [
            (first, span)
            for first in dict.fromkeys(firsts)
            if (span := self._span(first, window)) is not None
        ]
        if not spans:
            return []
        numbers = np.unique(np.concatenate([np.arange(*span) for _, span in spans]))
        batch = self._source.batch(PageTable(self._table.full[numbers], self._table.xor[numbers]))
        batch.expect()
        pages = batch.apply_xor(batch.full())
        begins = np.searchsorted(numbers, [begin for _, (begin, _) in spans]).tolist()
        return [
            (first, Content(pages[row : row + end - begin]))
            for (first, (begin, end)), row in zip(spans, begins, strict=True)
        ]

    def _span(self, first: int, window: int) -> tuple[int, int] | None:
        """Numbers of the pages from this one to the end of its run or window; None where it is in no run."""
        at = bisect_right(self._placed, first, key=_address) - 1
        if at < 0 or first >= self._placed[at][0] + self._placed[at][1]:
            return None
        begin, length, position = self._placed[at]
        until = min(begin + length, first - first % window + window)
        return position + first - begin, position + until - begin

    def _number(self, first: int, pages: int) -> int:
        begin, length, position = self._placed[bisect_right(self._placed, first, key=_address) - 1]
        assert begin <= first and first + pages <= begin + length, "no run holds these pages"
        return position + first - begin

    def _block(self, block: int) -> Pages:
        found = self._blocks.pop(block, None)
        if found is None:
            end = min((block + 1) * _BLOCK, len(self._table.full))
            found = self._source.read(self._table, np.arange(block * _BLOCK, end))
            while len(self._blocks) >= _BLOCKS_KEPT:
                self._blocks.popitem(last=False)
        self._blocks[block] = found  # the last used stand last
        return found


class CommitPages:
    """All packs of a commit's pages, open: they may be deleted from the store meanwhile. A context manager.

    Attributes:
        processes: by pid (as the service sees it), those that have pages which can come later.
    """

    def __init__(
        self,
        source: PageSource,
        images: list[ImageFile],
        small: Mapping[str, bytes],
        open_laid_out: Callable[[ImageFile], int | None],
    ) -> None:
        """Takes over a source that is entered already.

        Args:
            open_laid_out: gives a descriptor of a page file that is laid out already, unchecked; None where it is not.

        Raises:
            ObjectMissing, ObjectCorrupt, KeyMissing: a pack cannot be opened.
        """
        self._source = source
        with ExitStack() as stack:
            stack.push(source)
            by_name = {image.name: image for image in images}
            self.processes: dict[int, ProcessPages] = {}
            self._laid_out: list[int] = []
            for file in page_files(small, _sizes(images)):
                lazy = _lazy_runs(file, small)
                if any(lazy):
                    image = by_name[file.name]
                    laid_out = open_laid_out(image)
                    if laid_out is not None:
                        stack.callback(os.close, laid_out)
                        self._laid_out.append(laid_out)
                    ahead = ReadAhead(source, image, laid_out)
                    self.processes[_pid_of(file)] = ProcessPages(source, file, lazy, ahead)
                    source.open_packs(ahead.table)
            self._stack = stack.pop_all()

    def __enter__(self) -> CommitPages:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def descriptors(self) -> list[int]:
        """The files that are open for it."""
        return [*self._source.descriptors(), *self._laid_out]


def lazy_page_numbers(images: list[ImageFile], small: Mapping[str, bytes]) -> dict[str, Numbers]:
    """For each page file of which some pages can come later: the numbers of those that cannot.

    Raises:
        ObjectCorrupt: a pagemap is none.
    """
    found = {}
    for file in page_files(small, _sizes(images)):
        lazy = _lazy_runs(file, small)
        if any(lazy):
            lengths = [pages for _, pages in file.runs]
            found[file.name] = np.flatnonzero(~np.repeat(np.array(lazy, np.bool_), lengths))
    return found


def _sizes(images: list[ImageFile]) -> dict[str, int]:
    return {image.name: image.size for image in images if image.name.startswith("pages-")}


def _lazy_runs(file: PageFile, small: Mapping[str, bytes]) -> list[bool]:
    """For each run, whether it can come later; none can where no process's pagemap describes the file."""
    if not _OF_PROCESS.fullmatch(file.key):
        return [False] * len(file.runs)
    return read_lazy_runs(file.key, small[file.key])


def _pid_of(file: PageFile) -> int:
    found = _OF_PROCESS.fullmatch(file.key)
    if found is None:
        raise ObjectCorrupt(f"{file.key!r} is no process's pagemap", remedy="do not trust it")
    return int(found[1])


def _address(placed: tuple[int, int, int]) -> int:
    return placed[0]


def _joined(parts: list[Pages]) -> Pages:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)

"""Reading the pages of one page file ahead of who goes through it, in a thread beside.

Where the whole file lies laid out already, that thread checks it against its hash, and from then on it is taken from there.
"""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from relive.model.commit import ImageFile
from relive.store.pages.batch import PageBatch
from relive.store.pages.mapped import hash_pages, map_pages
from relive.store.pages.materialize import PageSource
from relive.store.pages.packfile import FRAME_PAGES
from relive.store.pages.page_diff import Pages
from relive.store.pages.table import PageTable

__all__ = ["ReadAhead"]

# [pages] made at once: so long, about a millisecond, may somebody have to wait for them.
_PART = 2 * FRAME_PAGES
_AHEAD = 8  # [parts]
_KEPT = 3 * _AHEAD  # [parts]


class ReadAhead:
    """Pages by number. Use it from one thread; its own one begins with ``begin`` and ends with ``rest``.

    Attributes:
        table: of the image.
    """

    def __init__(self, source: PageSource, image: ImageFile, laid_out: int | None) -> None:
        """All packs of the image must be open in ``source`` before ``begin``.

        Args:
            laid_out: a descriptor of the page file, unchecked; None if there is none.
        """
        self._source = source
        self._image = image
        self.table = source.table_of(image)
        self._laid_out = laid_out
        self._pool: ThreadPoolExecutor | None = None
        self._checked: Future[Pages | None] | None = None
        self._parts: OrderedDict[int, Future[Pages]] = OrderedDict()
        self._last: tuple[int, PageBatch] | None = None  # of the thread

    def begin(self) -> bool:
        """Begin, or go on; False as long as ``read`` would have to wait for the check of a file that is laid out."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
            if self._laid_out is not None and self._checked is None:
                self._checked = self._pool.submit(self._check, self._laid_out)
        return self._checked is None or self._checked.done()

    def rest(self) -> None:
        """Give memory and thread back, until the next ``begin``: whoever went through the file has all of it."""
        pool, self._pool = self._pool, None
        self._parts.clear()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _check(self, laid_out: int) -> Pages | None:
        pages = map_pages(laid_out)
        is_whole = len(pages) == len(self.table.full)
        return pages if is_whole and hash_pages(pages, self._image.size) == self._image.object else None

    def _whole(self) -> Pages | None:
        """The pages of the file that is laid out, once it is known to be sound."""
        return self._checked.result() if self._checked is not None and self._checked.done() else None

    def read(self, number: int, pages: int) -> list[Pages]:
        """These pages, in parts, which are waited for; those that follow will be read meanwhile. Only after ``begin``.

        Raises:
            ObjectCorrupt, KeyWrong: a pack is damaged, or sealed with another key.
        """
        whole = self._whole()
        if whole is not None:
            return [whole[number : number + pages]]
        first, last = number // _PART, (number + pages - 1) // _PART
        most = (len(self.table.full) - 1) // _PART
        for part in range(first, min(last + _AHEAD, most) + 1):
            self._ask_for(part)
        return self._cut(number, pages, [self._parts[part].result() for part in range(first, last + 1)])

    def what_is_there(self, number: int, pages: int) -> list[Pages] | None:
        """These pages, in parts; None if they have not all been read already."""
        whole = self._whole()
        if whole is not None:
            return [whole[number : number + pages]]
        wanted = range(number // _PART, (number + pages - 1) // _PART + 1)
        found = [self._parts.get(part) for part in wanted]
        there = [one.result() for one in found if one is not None and one.done()]
        return self._cut(number, pages, there) if len(there) == len(wanted) else None

    @staticmethod
    def _cut(number: int, pages: int, parts: list[Pages]) -> list[Pages]:
        begin, cut = number % _PART, []
        for part in parts:
            cut.append(part[begin : begin + pages])
            pages, begin = pages - len(cut[-1]), 0
        return cut

    def _ask_for(self, part: int) -> None:
        if part in self._parts:
            self._parts.move_to_end(part)
            return
        assert self._pool is not None, "only after begin"
        while len(self._parts) >= _KEPT:
            self._parts.popitem(last=False)[1].cancel()
        self._parts[part] = self._pool.submit(self._make, part)

    def _make(self, part: int) -> Pages:
        before = self._last[1] if self._last is not None and self._last[0] == part - 1 else None
        begin = part * _PART
        table = PageTable(self.table.full[begin : begin + _PART], self.table.xor[begin : begin + _PART])
        batch = self._source.batch(table, before)
        pages = batch.apply_xor(batch.full())
        self._last = part, batch
        return pages

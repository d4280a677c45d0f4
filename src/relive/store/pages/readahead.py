"""Reading the pages of one page file ahead of who goes through it, in a thread beside."""

from __future__ import annotations

from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from relive.store.pages.differ import Pages
from relive.store.pages.layout import PageSource
from relive.store.pages.packfile import FRAME_PAGES
from relive.store.pages.table import Table
from relive.store.pages.window import Window

__all__ = ["ReadAhead"]

_PART = (
    2 * FRAME_PAGES
)  # [pages] made at once: so long, about a millisecond, may somebody have to wait for them
_AHEAD = 8  # [parts]
_KEPT = 3 * _AHEAD  # [parts]


class ReadAhead:
    """Pages by number. Use it from one thread; its own one begins with the first ``read``, and ends with the process."""

    def __init__(self, source: PageSource, table: Table) -> None:
        """All packs of ``table`` must be open in ``source`` before the first ``read``."""
        self._source = source
        self._table = table
        self._pool: ThreadPoolExecutor | None = None
        self._parts: OrderedDict[int, Future[Pages]] = OrderedDict()
        self._last: tuple[int, Window] | None = None  # of the thread

    def read(self, number: int, pages: int) -> list[Pages]:
        """These pages, in parts, which are waited for; those that follow will be read meanwhile.

        Raises:
            ObjectCorrupt, KeyWrong: a pack is damaged, or sealed with another key.
        """
        first, last = number // _PART, (number + pages - 1) // _PART
        most = (len(self._table.full) - 1) // _PART
        for part in range(first, min(last + _AHEAD, most) + 1):
            self._ask_for(part)
        return self._cut(number, pages, [self._parts[part].result() for part in range(first, last + 1)])

    def what_is_there(self, number: int, pages: int) -> list[Pages] | None:
        """These pages, in parts; None if they have not all been read already."""
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
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        while len(self._parts) >= _KEPT:
            self._parts.popitem(last=False)[1].cancel()
        self._parts[part] = self._pool.submit(self._make, part)

    def _make(self, part: int) -> Pages:
        before = self._last[1] if self._last is not None and self._last[0] == part - 1 else None
        begin = part * _PART
        table = Table(self._table.full[begin : begin + _PART], self._table.xor[begin : begin + _PART])
        window = self._source.window(table, before)
        pages = window.apply_xor(window.full())
        self._last = part, window
        return pages

"""Which pages of one process are not there yet, and where their content is found. Plain values; numbers are pages.

A page is known by where it is now; its content by where it was when the commit was taken (it may have been moved since,
mremap(2)).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Missing", "Stretch"]


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """Pages [first, end), whose content is that of the committed pages from ``content`` on."""

    first: int
    end: int
    content: int

    @property
    def pages(self) -> int:
        """How many."""
        return self.end - self.first

    def part(self, first: int, end: int) -> Stretch:
        """What lies within [first, end); must not be nothing."""
        low, high = max(first, self.first), min(end, self.end)
        return Stretch(low, high, self.content + low - self.first)


class Missing:
    """Stretches that do not overlap, by address."""

    def __init__(self, stretches: Iterable[Stretch]) -> None:
        self._stretches = sorted(stretches)
        self.pages = sum(one.pages for one in self._stretches)

    def fork(self) -> Missing:
        """The same for a child process, which has its own from here on."""
        return Missing(self._stretches)

    def around(self, page: int, window: int) -> Stretch | None:
        """Missing pages that lie together with this one, in its aligned window of so many pages; None if it is there."""
        at = self._at(page)
        if at is None:
            return None
        begin = page - page % window
        return self._stretches[at].part(begin, begin + window)

    def after(self, page: int, most: int) -> Stretch | None:
        """The first missing pages from this one on, else from the lowest; None if nothing is missing."""
        if not self._stretches:
            return None
        at = self._at(page)
        if at is None:
            at = bisect_right(self._stretches, page, key=_first)
        stretch = self._stretches[at % len(self._stretches)]
        begin = page if stretch.first <= page < stretch.end else stretch.first
        return stretch.part(begin, begin + most)

    def drop(self, first: int, pages: int) -> Sequence[Stretch]:
        """Forget a range: it is there now, or gone for good. Returns what was missing of it."""
        end = first + pages
        low = max(0, bisect_right(self._stretches, first, key=_first) - 1)
        high, kept, dropped = low, [], []
        while high < len(self._stretches) and self._stretches[high].first < end:
            stretch = self._stretches[high]
            high += 1
            if stretch.end <= first:
                kept.append(stretch)
                continue
            if stretch.first < first:
                kept.append(stretch.part(stretch.first, first))
            dropped.append(stretch.part(first, end))
            if stretch.end > end:
                kept.append(stretch.part(end, stretch.end))
        self._stretches[low:high] = kept
        self.pages -= sum(one.pages for one in dropped)
        return dropped

    def move(self, first: int, destination: int, pages: int) -> None:
        """A range of the memory is somewhere else now; what had been at its destination is gone."""
        moved = self.drop(first, pages)
        self.drop(destination, pages)
        by = destination - first
        self._stretches += [Stretch(one.first + by, one.end + by, one.content) for one in moved]
        self._stretches.sort()
        self.pages += sum(one.pages for one in moved)

    def _at(self, page: int) -> int | None:
        at = bisect_right(self._stretches, page, key=_first) - 1
        return at if at >= 0 and page < self._stretches[at].end else None


def _first(stretch: Stretch) -> int:
    return stretch.first

"""Runs of pages: which pages of two page files have the same address, though they lie at other places in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from relive.errors import ObjectCorrupt
from relive.images.pagemap import Run, read_pagemap
from relive.store.pages.size import PAGE, page_count

__all__ = ["Match", "PageFile", "is_all_of_both", "match", "page_files"]

Match = tuple[int, int, int]  # (position in ours, position in theirs, number of pages)
_read = lru_cache(maxsize=8)(
    read_pagemap
)  # of one commit after another it is mostly the same; nobody changes what it gives


@dataclass(frozen=True, slots=True)
class PageFile:
    """One of CRIU's page files.

    Attributes:
        name: ``pages-N.img``; N may be another in the next commit.
        key: what it is found again by in the next commit: the name of its pagemap, which holds a pid or the id of a
            shared memory; its own name if none fits.
        size: in bytes; the last page of one that is no multiple of 4096 counts as filled up with zeros.
        runs: addresses of its pages in their order.
    """

    name: str
    key: str
    size: int
    runs: Sequence[Run]


def page_files(small: Mapping[str, bytes], sizes: Mapping[str, int]) -> list[PageFile]:
    """What the pagemaps among the small images say of the page files, whose sizes in bytes are given by name.

    A file that no pagemap describes, or not in this size, is taken as one run from address 0 on.
    """
    described: dict[str, tuple[str, Sequence[Run]]] = {}
    for name in sorted(small):
        if name.startswith("pagemap-"):
            try:
                number, found_runs = _read(name, small[name])
            except ObjectCorrupt:
                continue
            described[f"pages-{number}.img"] = (name, found_runs)
    found = []
    for name, size in sorted(sizes.items()):
        key, runs = described.get(name, (name, ()))
        if sum(pages for _, pages in runs) * PAGE != size:
            key, runs = name, ((0, page_count(size)),)
        found.append(PageFile(name, key, size, runs))
    return found


def match(ours: Sequence[Run], theirs: Sequence[Run]) -> list[Match]:
    """The stretches of addresses that both have."""
    if ours is theirs:
        return [(0, 0, sum(pages for _, pages in ours))]
    others = _placed(theirs)
    matches: list[Match] = []
    begin = 0
    for first, end, position in _placed(ours):
        while begin < len(others) and others[begin][1] <= first:
            begin += 1
        for other_first, other_end, other_position in islice(others, begin, None):
            if other_first >= end:
                break
            low, high = max(first, other_first), min(end, other_end)
            if low < high:
                matches.append((position + low - first, other_position + low - other_first, high - low))
    return matches


def is_all_of_both(matches: Sequence[Match], ours: int, theirs: int) -> bool:
    """Both have the same addresses, in the same order: each page is in the same place."""
    return ours == theirs and [*matches] == [(0, 0, ours)]


def _placed(runs: Sequence[Run]) -> list[tuple[int, int, int]]:
    """(first page, page behind the last, position in the file), by address."""
    placed, position = [], 0
    for first, pages in runs:
        placed.append((first, first + pages, position))
        position += pages
    return sorted(placed)

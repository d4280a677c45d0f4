"""Numbers of pages as arrays, and the pagemaps that CRIU reads of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from relive.checkpoint.micro_record import CopiedRuns, FullCommitNeeded
from relive.checkpoint.page_runs import Span
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import decode, first_message, image_like

__all__ = [
    "PAGE",
    "PRESENT",
    "Numbers",
    "copied_runs",
    "each_once",
    "page_numbers",
    "pagemap_like",
    "pages_by_address",
    "pages_by_spans",
    "pages_within",
    "slots_of",
]

PAGE = 4096
"""[bytes]"""
PRESENT = 4
"""Of an entry: its pages are in the file of pages."""
_ENTRY_MOST = 256  # [pages] as CRIU's own
_REGION = 24  # [bytes] of a run as the tracker writes it
_UNREAD = 1 << 32  # of its flags: the pages could not be read

Numbers = npt.NDArray[np.int64]


def copied_runs(blocks: Iterable[CopiedRuns]) -> tuple[Numbers, Numbers, Numbers]:
    """Of pages that were to be copied, in the order of copying: first, end, offset [bytes] into the file (-1: they were not read).

    Raises:
        FullCommitNeeded: a block is not whole.
    """
    found = [np.empty((3, 0), np.int64)]
    for block in blocks:
        if len(block.data) % _REGION:
            raise FullCommitNeeded("a list of copied pages is cut off")
        start, end, flags = np.frombuffer(block.data, np.int64).reshape(-1, 3).T
        is_read = flags & _UNREAD == 0
        sizes = np.where(is_read, end - start, 0)
        if int(sizes.sum()) != block.size or (sizes < 0).any():
            raise FullCommitNeeded("copied pages and the list of them do not fit together")
        offsets = np.where(is_read, block.offset + np.cumsum(sizes) - sizes, -1)
        found.append(np.stack([start // PAGE, end // PAGE, offsets]))
    first, end, offset = np.concatenate(found, axis=1)
    return first, end, offset


def pages_by_address(runs: Iterable[tuple[int, int]]) -> tuple[Numbers, Numbers]:
    """Of (first page, number of pages) in the order of a page file: all pages by address, and where in that order each is."""
    numbers = page_numbers((first, first + count) for first, count in runs)
    order = np.argsort(numbers, kind="stable")
    return numbers[order], order.astype(np.int64)


def page_numbers(spans: Iterable[Span]) -> Numbers:
    """All pages of spans, in their order."""
    first, end = np.array(list(spans), np.int64).reshape(-1, 2).T
    counts = end - first
    # From each page to the next it is one further, but for the first of a span.
    begins = np.cumsum(counts) - counts
    numbers: Numbers = np.arange(int(counts.sum()), dtype=np.int64) + np.repeat(first - begins, counts)
    return numbers


def each_once(numbers: Numbers, others: Numbers) -> Numbers:
    """All of both, in ascending order. They are nearly in order, which numpy's ``union1d`` makes nothing of."""
    found = np.sort(np.concatenate([numbers, others]), kind="stable")
    is_first = np.ones(len(found), np.bool_)
    np.not_equal(found[1:], found[:-1], out=is_first[1:])
    return found[is_first]


def pages_within(pages: Numbers, spans: Sequence[Span]) -> npt.NDArray[np.bool_]:
    """Of each page, in ascending order, whether it is in one of the spans, which do not overlap."""
    inside = np.zeros(len(pages), np.bool_)
    bounds = np.searchsorted(pages, np.array(spans, np.int64).reshape(-1, 2))
    for first, end in bounds.tolist():
        inside[first:end] = True
    return inside


def slots_of(pages: Numbers, held: Numbers, slots: Numbers) -> Numbers:
    """Of each page its slot, -1 where it is not among those held, which are in ascending order, each with its slot."""
    found = np.full(len(pages), -1, np.int64)
    if len(held):
        at = np.searchsorted(held, pages).clip(max=len(held) - 1)
        is_held = held[at] == pages
        found[is_held] = slots[at[is_held]]
    return found


def pages_by_spans(present: Iterable[Span], within: Sequence[Span], without: Sequence[Span]) -> Numbers:
    """Pages of the first that are within the second and not in the third, in ascending order.

    Args:
        present: in any order. within, without: of each the spans do not overlap.
    """
    pages = np.sort(page_numbers(present), kind="stable")
    found: Numbers = pages[pages_within(pages, within) & ~pages_within(pages, without)]
    return found


def _runs(pages: Numbers, flags: Numbers) -> list[tuple[int, int]]:
    """Indices of runs of pages that follow each other, are alike, and are not longer than CRIU's."""
    if not len(pages):
        return []
    breaks = np.flatnonzero((np.diff(pages) != 1) | (np.diff(flags) != 0)) + 1
    bounds = [0, *breaks.tolist(), len(pages)]
    return [
        (begin, min(begin + _ENTRY_MOST, end))
        for first, end in pairwise(bounds)
        for begin in range(first, end, _ENTRY_MOST)
    ]


def pagemap_like(name: str, before: bytes, pages: Numbers, flags: Numbers) -> bytes:
    """The image of a pagemap like another, of these pages, which are in ascending order."""
    head = first_message(name, before)
    entries = [
        pb.PagemapEntry(
            vaddr=int(pages[first]) * PAGE,
            compat_nr_pages=0,
            in_parent=False,
            flags=int(flags[first]),
            nr_pages=end - first,
        )
        for first, end in _runs(pages, flags)
    ]
    return image_like(before, [decode(name, head, pb.PagemapHead), *entries])

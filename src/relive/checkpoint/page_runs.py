"""Arithmetic on runs of pages: which there are, which copy of each is the newest, and where it lies. Nothing here reads a file."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Placed", "Span", "difference", "newest", "placed", "union"]

Span = tuple[int, int]  # (first page, page behind the last)


class Placed(NamedTuple):
    """Pages ``first`` to ``end`` (exclusive), which lie one after the other in a file from its page ``slot`` on."""

    first: int
    end: int
    slot: int


def union(spans: Iterable[Span]) -> list[Span]:
    """The same pages as sorted spans that neither overlap nor touch."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif first < end:
            found.append((first, end))
    return found


def difference(spans: Sequence[Span], without: Sequence[Span]) -> list[Span]:
    """Pages of the first that are not of the second; both as of ``union``."""
    left: list[Span] = []
    at = 0
    for span_first, end in spans:
        first = span_first
        while at < len(without) and without[at][1] <= first:
            at += 1
        look = at
        while look < len(without) and without[look][0] < end:
            if without[look][0] > first:
                left.append((first, without[look][0]))
            first = max(first, without[look][1])
            look += 1
        if first < end:
            left.append((first, end))
    return left


def newest(written: Sequence[Span]) -> list[Placed]:
    """Where the newest copy of each page lies, by address.

    Args:
        written: in the order in which they follow each other in the file; of a page that comes twice the later copy counts.
    """
    slots, slot = [], 0
    for first, end in written:
        slots.append(slot)
        slot += end - first
    order = sorted(range(len(written)), key=lambda number: written[number][0])
    found: list[Placed] = []
    open_runs: list[int] = []  # a heap: of the runs that cover the address, the last written comes first
    at = address = 0
    while at < len(order) or open_runs:
        while open_runs and written[-open_runs[0]][1] <= address:
            heapq.heappop(open_runs)
        if not open_runs:
            if at == len(order):
                break
            address = max(address, written[order[at]][0])
        while at < len(order) and written[order[at]][0] <= address:
            heapq.heappush(open_runs, -order[at])
            at += 1
        while open_runs and written[-open_runs[0]][1] <= address:
            heapq.heappop(open_runs)
        if not open_runs:
            continue
        run = -open_runs[0]
        # It counts up to its end, or to where the next begins, which may be a later copy.
        end = min(written[run][1], written[order[at]][0] if at < len(order) else written[run][1])
        _append(found, Placed(address, end, slots[run] + address - written[run][0]))
        address = end
    return found


def _append(found: list[Placed], piece: Placed) -> None:
    last = found[-1] if found else None
    if last and last.end == piece.first and last.slot + last.end - last.first == piece.slot:
        found[-1] = Placed(last.first, piece.end, last.slot)
    else:
        found.append(piece)


def placed(spans: Sequence[Span], copies: Sequence[Placed]) -> list[Placed]:
    """Where the pages of sorted spans lie among sorted copies; what has no copy is not in the answer."""
    found: list[Placed] = []
    at = 0
    for first, end in spans:
        while at < len(copies) and copies[at].end <= first:
            at += 1
        look = at
        while look < len(copies) and copies[look].first < end:
            copy = copies[look]
            low, high = max(first, copy.first), min(end, copy.end)
            found.append(Placed(low, high, copy.slot + low - copy.first))
            look += 1
    return found

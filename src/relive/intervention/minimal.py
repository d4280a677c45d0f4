"""Which of many changes are needed: delta debugging (ddmin; Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
Input", 2002), here of changes that make a failure go away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

__all__ = ["fewest", "split"]

Part = TypeVar("Part")


def fewest(parts: Sequence[Part], is_enough: Callable[[Sequence[Part]], bool]) -> list[Part]:
    """A part of the changes that is enough, and is not without any one of them; in their order.

    It need not be the smallest such part. With n changes of which one is needed about 2 log2(n) questions are asked, n * n + 3 n
    at most; none is asked twice.

    Args:
        parts: which are enough together: that is not asked again.
        is_enough: must not be asked about nothing, and is not; what it raises ends the search.
    """
    known: dict[tuple[int, ...], bool] = {}

    def enough(places: Sequence[int]) -> bool:
        key = tuple(places)
        if key not in known:
            known[key] = is_enough([parts[at] for at in places])
        return known[key]

    left = list(range(len(parts)))
    pieces = 2
    while len(left) > 1:
        chunks = split(left, pieces)
        smaller = next((one for one in chunks if enough(one)), None)
        if smaller is not None:
            left, pieces = smaller, 2
            continue
        if pieces > 2:  # of two, each is the other's rest
            rests = ([at for at in left if at not in set(one)] for one in chunks)
            rest = next((one for one in rests if enough(one)), None)
            if rest is not None:
                left, pieces = rest, max(pieces - 1, 2)
                continue
        if pieces >= len(left):
            break
        pieces = min(len(left), 2 * pieces)
    return [parts[at] for at in left]


def split(parts: Sequence[Part], pieces: int) -> list[list[Part]]:
    """So many pieces of about the same size, in their order, none of them empty."""
    pieces = min(pieces, len(parts))
    bounds = [len(parts) * at // pieces for at in range(pieces + 1)]
    return [list(parts[begin:end]) for begin, end in pairwise(bounds)]

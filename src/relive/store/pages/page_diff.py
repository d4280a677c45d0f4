"""Comparing pages by the thousand: which differ from those at the same address in the parent commit."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["WORDS", "Flags", "Numbers", "Pages", "changed_pages"]

WORDS = 512  # 8-byte words of a page
_BLOCK = 256  # [pages] compared by one call, so that what is compared stays in the processor's cache

Pages: TypeAlias = npt.NDArray[np.uint64]  # one row a page, WORDS columns
Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


def changed_pages(ours: Pages, theirs: Pages) -> Flags:
    """For each of our pages whether it differs from theirs; of both there are as many."""
    changed = np.empty(len(ours), np.bool_)
    scratch = np.empty((_BLOCK, WORDS), np.bool_)
    for begin in range(0, len(ours), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        differs = scratch[: len(ours[block])]
        np.not_equal(ours[block], theirs[block], out=differs)
        # Eight flags at once: a row is 512 bytes, all zero where the pages are the same.
        differs.view(np.uint64).any(axis=1, out=changed[block])
    return changed

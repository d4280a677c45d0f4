"""Comparing pages by the thousand: which differ from those at the same address in the parent commit. And their hash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from relive.store.pages.runs import Match

__all__ = ["WORDS", "Flags", "Numbers", "Pages", "changed_pages", "hash_pages"]

WORDS = 512  # 8-byte words of a page
_BLOCK = 256  # [pages] compared by one call, so that what is compared stays in the processor's cache

Pages: TypeAlias = npt.NDArray[np.uint64]  # one row a page, WORDS columns
Numbers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


def changed_pages(ours: Pages, theirs: Pages, matches: Iterable[Match]) -> Flags:
    """For each of our pages: it has no match, or differs from it."""
    changed = np.ones(len(ours), np.bool_)
    scratch = np.empty((_BLOCK, WORDS), np.bool_)
    for our_first, their_first, pages in matches:
        for done in range(0, pages, _BLOCK):
            count = min(_BLOCK, pages - done)
            mine, other = our_first + done, their_first + done
            differs = scratch[:count]
            np.not_equal(ours[mine : mine + count], theirs[other : other + count], out=differs)
            # Eight flags at once: a row is 512 bytes, all zero where the pages are the same.
            differs.view(np.uint64).any(axis=1, out=changed[mine : mine + count])
    return changed


def hash_pages(pages: Pages, size: int) -> str:
    """BLAKE3 of their first ``size`` bytes, 64 hexadecimal digits."""
    # One thread: a pool of threads would not survive fork().
    return blake3(pages.reshape(-1).view(np.uint8).data[:size]).hexdigest()

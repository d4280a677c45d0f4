"""The pages of a page file on its way in, or of a commit that the next one is compared with: mapped from it, or in a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from relive.store.pages.mapped import WINDOW, MappedPages
from relive.store.pages.page_diff import WORDS, Flags, Numbers, changed_pages
from relive.store.pages.page_pool import PooledPages
from relive.store.pages.runs import Match, is_all_of_both
from relive.store.pages.table import NOWHERE
from relive.store.pages.words import ChangedWords
from relive.store.pages.xor_bases import XorBases

__all__ = ["HeldPages", "changed_words", "note_changed"]

HeldPages: TypeAlias = MappedPages | PooledPages


def note_changed(
    ours: HeldPages, theirs: HeldPages, matches: Sequence[Match], there: Numbers, changed: Flags
) -> None:
    """Say of each of our pages that they have, too, whether it differs from theirs.

    Args:
        matches: where the same addresses are; there: the same for each page of ours, NOWHERE of those that they do not have.
        changed: of all ours; what they do not have stays.
    """
    if isinstance(ours, PooledPages) and isinstance(theirs, PooledPages) and ours.pool is theirs.pool:
        if is_all_of_both(matches, len(ours), len(theirs)):
            found = np.flatnonzero(ours.slots != theirs.slots)
            changed[:] = False
        else:
            found = np.flatnonzero(there != NOWHERE)
            changed[found] = False
            found = found[ours.slots[found] != theirs.slots[there[found]]]
        changed[found] = ours.pool.differ(ours.slots[found], theirs.slots[there[found]])
        return
    for first, their_first, count in matches:
        for begin in range(0, count, WINDOW):
            end = min(begin + WINDOW, count)
            window, their_window = (first + begin, first + end), (their_first + begin, their_first + end)
            changed[slice(*window)] = changed_pages(ours.window(*window), theirs.window(*their_window))
            ours.release(*window)
            theirs.release(*their_window)


def changed_words(
    ours: HeldPages, theirs: HeldPages, bases: XorBases, numbers: Numbers, most: int
) -> tuple[Numbers, ChangedWords]:
    """How many words of each of our pages are otherwise than in its base, and the words of those of which 1 to ``most`` are.

    Args:
        theirs: as many. numbers: of the pages of ``bases`` that are the bases; NOWHERE where it is the page of ``theirs``.
    """
    if isinstance(ours, PooledPages) and isinstance(theirs, PooledPages) and ours.pool is theirs.pool:
        return ours.pool.changed_words(ours.slots, theirs.slots, bases, numbers, most)
    pages, mask = ours.window(0, len(ours)), np.empty((len(ours), WORDS), np.bool_)
    kept = numbers != NOWHERE
    np.not_equal(pages, theirs.window(0, len(theirs)), out=mask)
    mask[kept] = pages[kept] != bases.get(numbers[kept])
    counts = np.count_nonzero(mask, axis=1)
    some = (counts > 0) & (counts <= most)
    return counts, ChangedWords.of(pages[some], mask[some])

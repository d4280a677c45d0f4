"""The pages of a page file on its way in, or of a commit that the next one is compared with: mapped from it, or in a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from relive.store.pages.mapped import WINDOW, MappedPages
from relive.store.pages.page_diff import Flags, Numbers, changed_pages
from relive.store.pages.page_pool import PooledPages
from relive.store.pages.runs import Match
from relive.store.pages.table import NOWHERE

__all__ = ["HeldPages", "note_changed"]

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

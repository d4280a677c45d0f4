"""Which packs tables use, which of those a key commit keeps anew, and numbering the rest without gaps. Pure decisions.

A series would end in packs of which each holds a few pages that are still used: a restore opens all of them, and none can be freed.
So every 32nd commit, a key commit, keeps anew what lies in packs that have little of the commit or of which little is used, as a
collector copies what lives out of a region. The price is bounded by both parts (``_LEAST_OF_COMMIT``, ``_LEAST_OF_PACK``): what is
kept anew was mostly alone in its pack, and a key commit needs nine packs at most.

Invariant: an index lists every pack that its tables name, and each dictionary's pack before those that are compressed against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from relive.store.pages.packfile import FrameKind
from relive.store.pages.page_diff import Numbers
from relive.store.pages.table import NOWHERE, Dictionaries, PageTable, pack_of, slot_of

__all__ = [
    "TablePacks",
    "continued",
    "dictionaries_in",
    "dictionaries_used",
    "numbered_anew",
    "packs_in",
    "packs_of",
    "packs_to_fold",
    "packs_used",
    "used_slots",
]

_LEAST_OF_COMMIT = 8  # a pack with less than this part of a commit's pages is folded: so a key commit has 8 + 1 packs at most
_LEAST_OF_PACK = 2  # and one less than this part of which is used


class TablePacks(NamedTuple):
    """Positions of the packs in which the pages of one table lie, -1 among them where one lies nowhere."""

    full: Sequence[int]
    xor: Sequence[int]


def packs_in(table: PageTable) -> TablePacks:
    """Those of a table: every place in it is looked at."""
    return TablePacks(packs_of(table.full), packs_of(table.xor))


def packs_used(tables: Iterable[TablePacks]) -> set[int]:
    """Positions of the packs that hold something of the pages of these tables."""
    used: set[int] = set()
    for packs in tables:
        used.update(packs.full, packs.xor)
    return used - {NOWHERE}


def dictionaries_used(
    tables: Iterable[TablePacks], dictionaries: Dictionaries
) -> dict[tuple[int, FrameKind], int]:
    """Those of ``dictionaries`` without which pages of these tables cannot be read, with what these continue."""
    used: set[tuple[int, FrameKind]] = set()
    for packs in tables:
        used.update((pack, FrameKind.PAGES) for pack in packs.full)
        used.update((pack, FrameKind.WORDS) for pack in packs.xor)
    return continued(used, dictionaries)


def packs_of(places: Numbers) -> list[int]:
    """Positions of the packs in which these lie, in ascending order, with -1 where one lies nowhere."""
    found: list[int] = (np.flatnonzero(np.bincount(pack_of(places) - NOWHERE)) + NOWHERE).tolist()
    return found


def continued(
    users: Iterable[tuple[int, FrameKind]], dictionaries: Dictionaries
) -> dict[tuple[int, FrameKind], int]:
    """The dictionaries of some packs, with those that these continue, to the first."""
    found: dict[tuple[int, FrameKind], int] = {}
    for pack, what in users:
        user, has = pack, dictionaries.get((pack, what))
        while has is not None and (user, what) not in found:
            found[user, what] = has
            user, has = has, dictionaries.get((has, what))
    # What has the first lists itself only where pages beside it are compressed against it.
    wanted = set(users)
    return {one: has for one, has in found.items() if one in wanted or has != one[0]}


def dictionaries_in(dictionaries: Dictionaries, pack: int) -> list[FrameKind]:
    """Which dictionaries of a pack are needed: of full pages (PAGES), of changed words (WORDS)."""
    return sorted({what for (_, what), has in dictionaries.items() if has == pack})


def used_slots(tables: Iterable[PageTable], pack: int) -> Numbers:
    """The slots of one pack that hold something of these pages, in order."""
    columns = [column for table in tables for column in (table.full, table.xor)]
    places = np.concatenate([np.empty(0, np.int64), *columns])
    return np.unique(slot_of(places[pack_of(places) == pack]))


def packs_to_fold(
    tables: Sequence[PageTable],
    others: Sequence[PageTable],
    size: Callable[[int], int],
    dictionaries: Dictionaries | None = None,
) -> Numbers:
    """Packs of which a key commit keeps these pages anew: few of them lie there, or little of the pack is used, or other packs are
    needed to read it.

    Args:
        tables: of the commit before: of its memory, or of its files. Either counts for itself, else a large file would have all
            memory kept anew again and again.
        others: its other tables, which use the same packs.
        size: of a pack by its position: how many pages it holds, 0 if it cannot be read.
        dictionaries: what is compressed against dictionaries.
    """
    counts, also = _counted(tables), _counted(others)
    total = sum(counts.values())
    folded = []
    for pack, count in counts.items():
        held = size(pack)
        used = count + also.get(pack, 0)
        leans = (dictionaries or {}).get((pack, FrameKind.PAGES), pack) != pack
        if leans or count * _LEAST_OF_COMMIT < total or used * _LEAST_OF_PACK < held or held == 0:
            folded.append(pack)
    return np.array(folded, np.int64)


def _counted(tables: Sequence[PageTable]) -> dict[int, int]:
    """How many full versions lie in each pack, by its position."""
    full = np.concatenate([np.empty(0, np.int64), *(table.full for table in tables)])
    packs, counts = np.unique(pack_of(full[full != NOWHERE]), return_counts=True)
    return dict(zip(packs.tolist(), counts.tolist(), strict=True))


def numbered_anew(tables: Mapping[str, PageTable], keep: Sequence[int]) -> dict[str, PageTable]:
    """The tables after all packs but ``keep`` are struck from the list; the others move up."""
    numbers = np.full(max(keep) + 1, NOWHERE, np.int64)
    numbers[list(keep)] = np.arange(len(keep))

    def moved(places: Numbers) -> Numbers:
        there = places != NOWHERE
        found = places.copy()
        found[there] = slot_of(places[there]) | (numbers[pack_of(places[there])] << 32)
        return found

    return {name: PageTable(moved(table.full), moved(table.xor)) for name, table in tables.items()}

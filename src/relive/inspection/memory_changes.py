"""Which pages of memory differ between two commits, by mapping.

Pages are compared by their addresses. Those that lie at the same place of the store are the same and are not read, so two commits
of one life cost what changed between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from relive.inspection.address_space import key_of_process
from relive.inspection.state import CommitState, ProcessState, Region
from relive.model.value import Value
from relive.store.pages.commit_memory import CommitMemory, compare
from relive.store.pages.page_diff import Numbers
from relive.store.pages.runs import PageFile
from relive.store.pages.size import PAGE

__all__ = ["MemoryChanges", "RegionChange", "memory_changes"]

_SHARED = "pagemap-shmem-"


class RegionChange(Value):
    """A mapping that came, went, or has other pages.

    Attributes:
        pid: its process; None of shared memory, whose addresses begin at 0.
        before, after: its size in bytes, None where it is not there.
        changed: pages with other bytes; added, dropped: pages that only the later or only the earlier commit has.
    """

    pid: int | None
    start: str
    name: str
    permissions: str
    before: int | None
    after: int | None
    changed: int
    added: int
    dropped: int


class MemoryChanges(Value):
    """``compared``: pages that had to be read, of each of both; ``pages``: that both have at the same address."""

    regions: list[RegionChange]
    changed: int
    added: int
    dropped: int
    pages: int
    compared: int

    def by_process(self) -> dict[int, int]:
        """How many pages of each process differ, came or went."""
        found: dict[int, int] = defaultdict(int)
        for one in self.regions:
            if one.pid is not None:
                found[one.pid] += one.changed + one.added + one.dropped
        return dict(found)


def memory_changes(
    before: CommitMemory, after: CommitMemory, old: CommitState, new: CommitState
) -> MemoryChanges:
    """What differs, by process and address.

    Raises:
        ObjectMissing, ObjectCorrupt, KeyMissing, KeyWrong: a pack is damaged or sealed.
    """
    regions: list[RegionChange] = []
    totals = np.zeros(5, np.int64)
    processes = (
        {key_of_process(one.pid): one for one in old.processes},
        {key_of_process(one.pid): one for one in new.processes},
    )
    for key in sorted(before.files.keys() | after.files.keys()):
        ours, theirs = _addresses(before.files.get(key)), _addresses(after.files.get(key))
        if key in before.files and key in after.files:
            changes = compare(before, after, key)
            changed, compared = np.sort(changes.differ), changes.compared
        else:
            changed, compared = np.empty(0, np.int64), 0
        added, dropped = np.setdiff1d(theirs, ours), np.setdiff1d(ours, theirs)
        common = len(ours) - len(dropped)
        totals += np.array([len(changed), len(added), len(dropped), common, compared])
        if key.startswith(_SHARED):
            regions += _of_shared(key, (changed, added, dropped), len(ours), len(theirs))
        else:
            regions += _of_process(processes[0].get(key), processes[1].get(key), (changed, added, dropped))
    return MemoryChanges(
        regions=regions,
        **dict(zip(("changed", "added", "dropped", "pages", "compared"), totals.tolist(), strict=True)),
    )


def _addresses(file: PageFile | None) -> Numbers:
    runs = file.runs if file is not None else ()
    parts = [np.arange(first, first + pages, dtype=np.int64) for first, pages in runs]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _of_shared(key: str, found: Sequence[Numbers], before: int, after: int) -> list[RegionChange]:
    if not any(len(one) for one in found):
        return []
    number = key.removeprefix(_SHARED).removesuffix(".img")
    return [
        RegionChange(
            pid=None,
            start="0x0",
            name=f"[shared memory {number}]",
            permissions="",
            before=before * PAGE if before else None,
            after=after * PAGE if after else None,
            changed=len(found[0]),
            added=len(found[1]),
            dropped=len(found[2]),
        )
    ]


def _of_process(
    old: ProcessState | None, new: ProcessState | None, found: Sequence[Numbers]
) -> list[RegionChange]:
    """A mapping is the same where it begins at the same address; of those that overlap without that, pages count for the later."""
    before = {one.start: one for one in old.regions} if old is not None else {}
    after = {one.start: one for one in new.regions} if new is not None else {}
    pid = new.pid if new is not None else old.pid if old is not None else None
    changes = []
    for start in sorted(before.keys() | after.keys(), key=lambda text: int(text, 16)):
        one, other = before.get(start), after.get(start)
        # Pages that came or changed stand in the later commit's mappings, pages that went in the earlier one's.
        counts = [_within(pages, other) for pages in found[:2]] + [_within(found[2], one)]
        same_size = one is not None and other is not None and one.size == other.size
        known = other or one
        if known is None or (same_size and not any(counts)):
            continue
        changes.append(
            RegionChange(
                pid=pid,
                start=start,
                name=known.name,
                permissions=known.permissions,
                before=one.size if one is not None else None,
                after=other.size if other is not None else None,
                changed=counts[0],
                added=counts[1],
                dropped=counts[2],
            )
        )
    return changes


def _within(pages: Numbers, region: Region | None) -> int:
    if region is None:
        return 0
    begin, end = int(region.start, 16) // PAGE, int(region.end, 16) // PAGE
    low, high = np.searchsorted(pages, [begin, end]).tolist()
    return int(high - low)

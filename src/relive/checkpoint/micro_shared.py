"""Memory that processes share and that is in no file, in commits on top of another: it is copied as a whole in each.

It can be written through any mapping of any process, which the kernel does not tell. A System V segment that no process has
attached is in no mapping from which it could be copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from relive.checkpoint.micro_pages import PAGE, PRESENT, Numbers, page_numbers, pagemap_like, slots_of
from relive.checkpoint.micro_record import CopiedRun, FullCommitNeeded, MicroRecord, Seen
from relive.images.pagemap import read_pagemap
from relive.store.pages.page_pool import PagePool, PooledPages

__all__ = ["BaseShared"]


class BaseShared:
    """That of a tree.

    Args:
        small: all images of the base, by name.
        seen: of each process.

    Raises:
        FullCommitNeeded: CRIU has not saved all of it.
    """

    def __init__(self, small: Mapping[str, bytes], seen: Sequence[Seen], pool: PagePool) -> None:
        self._small, self._pool = small, pool
        # Of each inode the pages of the last commit and what they hold: of those that are copied few have changed.
        self._held: dict[int, tuple[Numbers, PooledPages]] = {}
        kinds = {
            (one.inode, one.is_segment)
            for process in seen
            for one in process.mappings
            if one.is_shared_memory
        }
        self._inodes = {inode for inode, _ in kinds}
        if len(self._inodes) != len(kinds):  # CRIU names the images of both by that number
            raise FullCommitNeeded("a System V segment has the number of other shared memory")
        for number in _segments(seen):
            if (number, True) not in kinds:
                raise FullCommitNeeded(f"no process has System V segment {number} attached")
        for inode in self._inodes:
            if _name(inode) not in small:
                raise FullCommitNeeded("CRIU has not saved all of its shared memory")

    def pages_name(self, inode: int) -> str:
        """The image of its pages."""
        return f"pages-{read_pagemap(_name(inode), self._small[_name(inode)])[0]}.img"

    @property
    def pages_names(self) -> set[str]:
        """Those of all."""
        return {self.pages_name(inode) for inode in self._inodes}

    def check(self, records: Sequence[MicroRecord]) -> None:
        """See whether all of it was copied, once.

        Raises:
            FullCommitNeeded: it was not.
        """
        copied = [
            int(words[1])
            for record in records
            for line in record.seen.hidden
            if (words := line.split())[0] == "shared"
        ]
        if sorted(copied) != sorted(self._inodes):
            raise FullCommitNeeded("its shared memory was not copied as a whole")

    def images_of(self, records: Sequence[MicroRecord]) -> tuple[dict[str, bytes], dict[str, PooledPages]]:
        """Its images, and its pages, by name.

        Raises:
            OSError: the disk is full.
        """
        copied = {inode: (record.path, runs) for record in records for inode, runs in record.shared.items()}
        self._held = {inode: self._take(inode, *copied.get(inode, (None, ()))) for inode in self._inodes}
        small = {_name(inode): self._image(inode, numbers) for inode, (numbers, _) in self._held.items()}
        return small, {self.pages_name(inode): held for inode, (_, held) in self._held.items()}

    def _take(self, inode: int, path: Path | None, runs: Sequence[CopiedRun]) -> tuple[Numbers, PooledPages]:
        """``path``: where its pages were copied to; None: it has none."""
        if path is None:
            return np.empty(0, np.int64), self._pool.hold(np.empty(0, np.int64))
        numbers = page_numbers((run.first, run.end) for run in runs)
        offsets = np.concatenate([run.offset + np.arange(run.end - run.first) * PAGE for run in runs])
        before = slots_of(numbers, *self._slots_before(inode))
        with path.open("rb") as copied:
            return numbers, self._pool.hold(self._pool.add_changed(copied.fileno(), offsets, before))

    def _slots_before(self, inode: int) -> tuple[Numbers, Numbers]:
        before = self._held.get(inode)
        return (before[0], before[1].slots) if before is not None else (np.empty(0, np.int64),) * 2

    def _image(self, inode: int, numbers: Numbers) -> bytes:
        return pagemap_like(
            _name(inode), self._small[_name(inode)], numbers, np.full(len(numbers), PRESENT, np.int64)
        )


def _segments(seen: Sequence[Seen]) -> list[int]:
    """The numbers of all System V segments that there are."""
    return [int(line.split()[1]) for one in seen for line in one.lines if line.startswith("segment ")]


def _name(inode: int) -> str:
    return f"pagemap-shmem-{inode}.img"

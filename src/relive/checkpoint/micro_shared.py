"""Memory that processes share and that is in no file, in commits on top of another: it is copied as a whole in each.

It can be written through any mapping of any process, which the kernel does not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relive.checkpoint.micro_pages import PAGE, PRESENT, Numbers, page_numbers, pagemap_like
from relive.checkpoint.micro_record import FullCommitNeeded, MicroRecord, Seen
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
        self._inodes = {mapping.inode for one in seen for mapping in one.mappings if mapping.is_shared_memory}
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
        small = {_name(inode): self._image(inode, np.empty(0, np.int64)) for inode in self._inodes}
        held = {name: self._pool.hold(np.empty(0, np.int64)) for name in self.pages_names}
        for record in records:
            for inode, runs in record.shared.items():
                numbers = page_numbers((run.first, run.end) for run in runs)
                small[_name(inode)] = self._image(inode, numbers)
                begins = [(run.offset, run.end - run.first) for run in runs]
                offsets = np.concatenate([at + np.arange(count) * PAGE for at, count in begins])
                with record.path.open("rb") as copied:
                    held[self.pages_name(inode)] = self._pool.hold(self._pool.add(copied.fileno(), offsets))
        return small, held

    def _image(self, inode: int, numbers: Numbers) -> bytes:
        return pagemap_like(
            _name(inode), self._small[_name(inode)], numbers, np.full(len(numbers), PRESENT, np.int64)
        )


def _name(inode: int) -> str:
    return f"pagemap-shmem-{inode}.img"

"""A series of commits of a service that does not exist: its memory lives, a little at a time."""

from __future__ import annotations

import tempfile

import numpy as np

from relive.images.pagemap import read_pagemap
from relive.model.commit import CommitId, Manifest
from relive.store import IngestedImages, Store, StoredCommit
from relive.store.held_images import HeldImages
from relive.store.pages.page_pool import PooledPages

from .builders import make_manifest
from .test_runs import entry, pagemap

PAGES = 600


class Service:
    """Memory of two processes; ``live`` changes it as a service's does, the same way for the same seed.

    With ``records``, records of 100 words take the place of others, too; some of them have words that are zero. With ``moved``, so
    many pages are filled with content that the service had elsewhere before, as caches are, at another offset each time.
    """

    def __init__(self, seed: int = 0, pages: int = PAGES, *, records: int = 0, moved: int = 0) -> None:
        self._records = records
        self._moved = moved
        self._library = np.random.default_rng(99).integers(0, 1 << 60, 40 * 512).astype(np.uint64)
        self._random = np.random.default_rng(seed)
        self._memory = {pid: self._random.integers(0, 99, (pages, 512)).astype(np.uint64) for pid in (7, 8)}
        self._first = {7: 5000, 8: 90_000}
        self.turn = 0

    def live(self) -> None:
        """Counters move, some pages are written anew, some given back, the heap grows at its beginning."""
        random = self._random
        self.turn += 1
        for pid, pages in self._memory.items():
            some = random.choice(len(pages), 20, replace=False)
            pages[some, random.integers(0, 512, 20)] += np.uint64(1)
            pages[random.choice(len(pages), 3)] = random.integers(0, 1 << 60, (3, 512)).astype(np.uint64)
            pages[random.choice(len(pages), 2)] = 0
            for page in random.choice(len(pages), self._records, replace=False):
                begin = int(random.integers(0, 400))
                pages[page, begin : begin + 100] = self._record()
                pages[page, begin + 50] *= np.uint64(page % 3 > 0)
            for page in random.choice(len(pages), self._moved, replace=False):
                begin = int(random.integers(0, 39 * 512))
                pages[page] = self._library[begin : begin + 512]
            if self.turn % 5 == 0:
                fresh = random.integers(0, 9, (4, 512)).astype(np.uint64)
                self._memory[pid] = np.concatenate([fresh, pages])
                self._first[pid] -= 4

    def _record(self) -> np.ndarray:
        if not self._moved:
            return self._random.integers(1, 9, 100).astype(np.uint64)
        begin = int(self._random.integers(0, 50)) * 100
        return self._library[begin : begin + 100]

    def images(self) -> dict[str, bytes]:
        """As CRIU leaves them; the numbers of the page files are others each time."""
        found = {"core-7.img": b"registers %d" % self.turn}
        for number, (pid, pages) in enumerate(self._memory.items(), self.turn % 3 + 1):
            found[f"pagemap-{pid}.img"] = pagemap(number, entry(self._first[pid], len(pages)))
            found[f"pages-{number}.img"] = pages.tobytes()
        return found


class Pooling:
    """A service's page files in a pool, as micro-commits have them: what did not change since the last time keeps its slot."""

    def __init__(self, store: Store) -> None:
        self.pool = store.page_pool()
        self._before: dict[tuple[str, int], tuple[bytes, int]] = {}  # by file and address: content and slot
        self._held: list[PooledPages] = []

    def take(self, images: dict[str, bytes]) -> dict[str, PooledPages]:
        """Move the page files out of some images."""
        now, found = {}, {}
        for key in [name for name in images if name.startswith("pagemap-")]:
            number, [(first, _)] = read_pagemap(key, images[key])
            data = images.pop(f"pages-{number}.img")
            pages = [data[begin : begin + 4096] for begin in range(0, len(data), 4096)]
            slots = self._slots(key, first, pages)
            now |= {(key, first + at): (page, int(slots[at])) for at, page in enumerate(pages)}
            found[f"pages-{number}.img"] = self.pool.hold(slots)
        self._before, self._held = now, list(found.values())
        return found

    def _slots(self, key: str, first: int, pages: list[bytes]) -> np.ndarray:
        slots = np.full(len(pages), -1, np.int64)
        for at, page in enumerate(pages):
            content, slot = self._before.get((key, first + at), (b"", -1))
            slots[at] = slot if content == page else -1
        new = np.flatnonzero(slots < 0)
        with tempfile.TemporaryFile() as file:
            file.write(b"".join(pages[at] for at in new))
            file.flush()
            slots[new] = self.pool.add(file.fileno(), np.arange(len(new)) * 4096)
        return slots


def take(
    store: Store,
    service: Service,
    parent: CommitId | None,
    name: str = "pay",
    pooling: Pooling | None = None,
) -> StoredCommit:
    """Commit the service as it is."""
    with store.taking_in():
        return store.add(*read_in(store, service, parent, name, pooling))


def read_in(
    store: Store,
    service: Service,
    parent: CommitId | None,
    name: str = "pay",
    pooling: Pooling | None = None,
) -> tuple[Manifest, IngestedImages]:
    """What ``Store.add`` or ``Store.write`` makes a commit of the service of."""
    staging, images = store.stage(), service.images()
    held = HeldImages(images, pooling.take(images)) if pooling is not None else None
    for image, data in images.items():
        (staging.images / image).write_bytes(data)
    try:
        taken = store.ingest_images(held or staging.images, parent)
        return make_manifest(
            name=name,
            images=taken.images,
            capture=f"{service.turn}",
            wall_ns=service.turn,
            parents=[parent] if parent is not None else [],
        ), taken
    finally:
        staging.discard()

"""Commits whose pages lie in a pool: the same commits as of whole page files, of whatever is shared with the one before."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from relive.store import Store
from relive.store.pages import ingest, page_pool
from relive.store.pages.page_pool import PagePool
from relive.store.pages.page_tree import PageTree

from .builders import contents
from .series import Pooling, Service, take


def test_a_state_has_the_same_id_taken_from_a_pool_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Over key commits, with pages that move, and commits that are taken but never stored."""
    monkeypatch.setattr(ingest, "KEY_EVERY", 4)
    whole, pooled = Store(tmp_path / "whole"), Store(tmp_path / "pooled")
    service, pooling = Service(pages=40), Pooling(pooled)
    expected, parent = {}, None
    for turn in range(12):
        one = take(whole, service, parent)
        if turn == 7:
            pooling = Pooling(pooled)  # a new base
        two = take(pooled, service, parent, pooling=pooling)
        assert one.id == two.id
        expected[two.id], parent = service.images(), one.id
        service.live()
        if turn % 3 == 1:
            pooling.take(service.images())
            service.live()
    for commit_id, images in expected.items():
        assert contents(pooled, commit_id)[0] == images
    assert two.new_bytes < one.new_bytes * 1.1  # it does not keep anew what the parent has
    whole.close()
    pooled.close()


def test_what_went_wrong_in_a_tree_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """GIVEN a tree of which a node is wrong, WHEN it has become old, THEN all pages are hashed anew."""
    monkeypatch.setattr(page_pool, "_WHOLE_EVERY", 3)
    pool, path = PagePool(tmp_path), tmp_path / "record"
    path.write_bytes(np.random.default_rng(3).integers(0, 256, (60, 4096), dtype=np.uint8).tobytes())
    with path.open("rb") as file:
        slots = pool.add(file.fileno(), np.arange(60) * 4096)
    held = pool.hold(slots[:40])
    held.hashed(40 * 4096, None)
    assert held.tree is not None
    held.tree._nodes[31] ^= 1  # beside the one that changes
    is_right = []
    for turn in range(5):
        changed = held.slots.copy()
        changed[30] = slots[40 + turn]
        following = pool.hold(changed)
        told = following.hashed(40 * 4096, held)
        is_right.append(told == blake3(pool.read(changed).tobytes()).hexdigest())
        held = following
    assert is_right == [False, False, False, True, True]


def test_two_commits_that_go_on_from_the_same_pages_have_the_right_hashes(tmp_path: Path):
    """The tree of the pages before goes over to the first of them, which may never be stored."""
    pool, path = PagePool(tmp_path), tmp_path / "record"
    path.write_bytes(np.random.default_rng(3).integers(0, 256, (60, 4096), dtype=np.uint8).tobytes())
    with path.open("rb") as file:
        slots = pool.add(file.fileno(), np.arange(60) * 4096)
    held = pool.hold(slots[:40])
    held.hashed(40 * 4096, None)
    for turn in range(2):
        changed = held.slots.copy()
        changed[30 + turn] = slots[40 + turn]
        told = pool.hold(changed).hashed(40 * 4096, held)
        assert told == blake3(pool.read(changed).tobytes()).hexdigest()


def test_pages_that_did_not_change_stay_in_their_slots(tmp_path: Path):
    pool, path = PagePool(tmp_path), tmp_path / "record"
    pages = np.random.default_rng(3).integers(0, 256, (9, 4096), dtype=np.uint8)

    def add(before: list[int] | None) -> list[int]:
        path.write_bytes(b"odd" + pages.tobytes())
        offsets = 3 + np.arange(9) * 4096
        with path.open("rb") as file:
            if before is None:
                return pool.add(file.fileno(), offsets).tolist()
            with pytest.raises(OSError, match="missing"):
                pool.add_changed(file.fileno(), offsets + 1, np.array(before))
            return pool.add_changed(file.fileno(), offsets, np.array(before)).tolist()

    first = pool.hold(np.array(add(None)))
    pages[4, 4095] ^= 1
    before = first.slots.tolist()
    before[6] = -1
    slots = add(before)
    assert [slots[i] == first.slots[i] for i in range(9)] == [i not in (4, 6) for i in range(9)]
    assert pool.read(np.array(slots)).tobytes() == pages.tobytes()
    assert len({*slots, *first.slots.tolist()}) == 11  # what is held was not written to


def test_pages_keep_what_they_hold_until_nobody_holds_them(tmp_path: Path):
    random, model, held = np.random.default_rng(5), {}, {}
    pool = PagePool(tmp_path)
    for turn in range(60):
        pages = random.integers(0, 256, (int(random.integers(1, 60)), 4096), dtype=np.uint8)
        path = tmp_path / "record"
        path.write_bytes(b"head" + pages.tobytes())
        with path.open("rb") as file:
            slots = pool.add(file.fileno(), 4 + np.arange(len(pages)) * 4096)
            with pytest.raises(OSError, match="missing"):
                pool.add(file.fileno(), np.array([4 + len(pages) * 4096]))
        model[turn], held[turn] = pages.tobytes(), pool.hold(slots)
        for gone in [one for one in held if random.random() < 0.3]:
            del held[gone]
        gc.collect()
        for one, pooled in held.items():
            assert pooled.window(0, len(pooled)).tobytes() == model[one]
    assert len(pool) < 1000  # slots are used again: 1800 pages were added


def test_a_tree_gives_the_hash_of_the_whole_file_however_it_changed():
    random = np.random.default_rng(3)
    pages = random.integers(0, 1 << 60, (300, 512)).astype(np.uint64)
    before, tree = np.empty(0, np.int64), PageTree.of(pages, np.empty(0, np.int64))
    for count in [0, 1, 2, 3, 4, 5, 7, 8, 9, 1, 16, 17, 33, 32, 31, *random.integers(0, 300, 60).tolist()]:
        slots = random.integers(0, 300, count)
        both = min(count, len(before))
        kept = random.random(both) < 0.9
        slots[:both][kept] = before[:both][kept]
        changed = np.flatnonzero(np.append(slots[:both] != before[:both], np.ones(count - both, bool)))
        tree, before = tree.after(pages, slots, changed), slots
        assert tree.hash == blake3(pages[slots].tobytes()).hexdigest()
        assert tree.hash == PageTree.of(pages, slots).hash


def test_trees_are_made_in_several_threads_at_once():
    """What is handed to the library is alive while it works, and other threads take what is free meanwhile."""
    pages = np.random.default_rng(1).integers(0, 1 << 60, (100, 512)).astype(np.uint64)

    def make(seed: int) -> bool:
        random = np.random.default_rng(seed)
        [np.full(1, 1 << 40, np.int64) for _ in range(100)]
        slots = random.integers(0, 100, int(random.integers(2, 40)))
        return PageTree.of(pages, slots).hash == blake3(pages[slots].tobytes()).hexdigest()

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(make, range(800)))

"""The pages of a lazy branch: read from packs ahead of who wants them, or taken from a file that is laid out and sound."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from relive.errors import ObjectCorrupt
from relive.model.commit import CommitId
from relive.store import Store
from relive.store.pages.page_reader import CommitPages, Content, ProcessPages
from relive.store.pages.readahead import _PART

from .builders import make_manifest
from .test_damage import flip
from .test_runs import LAZY, PRESENT, entry, pagemap

FIRST, PAGES = 5000, 6 * _PART + 33
APART = 70  # [pages] that cannot come later lie in between, so that nothing begins with a frame


def bytes_at(content: Content, row: int) -> bytes:
    return ctypes.string_at(content.address(row), 4096)


@pytest.fixture
def memory() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 1 << 60, (APART + PAGES, 512)).astype(np.uint64)


@pytest.fixture
def one(store: Store, memory: np.ndarray) -> CommitId:
    """The second of a series, with XORs and zeros."""
    parent = take(store, memory, None)
    memory[::9, 4] += np.uint64(1)
    memory[100:130] = 0
    return take(store, memory, parent)


def take(store: Store, memory: np.ndarray, parent: CommitId | None) -> CommitId:
    staging = store.stage()
    map_ = pagemap(1, entry(100, APART), entry(FIRST, PAGES, PRESENT | LAZY))
    (staging.images / "pagemap-7.img").write_bytes(map_)
    (staging.images / "pages-1.img").write_bytes(memory.tobytes())
    with store.taking_in():
        taken = store.ingest_images(staging.images, parent)
        manifest = make_manifest(images=taken.images, capture=str(parent), parents=[parent] if parent else [])
        stored = store.add(manifest, taken)
    staging.discard()
    return stored.id


@contextlib.contextmanager
def opened(store: Store, commit_id: CommitId) -> Iterator[tuple[CommitPages, ProcessPages]]:
    with store.images.open_pages(store.manifest(commit_id)) as pages:
        yield pages, pages.processes[7]


def read_on(process: ProcessPages, first: int, pages: int) -> Content:
    """As soon as it can be had."""
    content = process.read_on(first, pages)
    if content is None:
        checked = process._ahead._checked
        assert checked is not None
        checked.exception()  # waits
        content = process.read_on(first, pages)
    assert content is not None
    return content


def all_are_right(process: ProcessPages, memory: np.ndarray, step: int) -> None:
    for at in range(0, PAGES, step):
        pages = min(step, PAGES - at)
        ahead = read_on(process, FIRST + at, pages)
        # Somebody waits for another page meanwhile, which may be there already or not.
        other = (at * 7 + 1) % PAGES
        alone = process.read(FIRST + other, 1)
        assert bytes_at(alone, 0) == memory[APART + other].tobytes()
        for row in (0, pages // 2, pages - 1):
            assert bytes_at(ahead, row) == memory[APART + at + row].tobytes()


@pytest.mark.parametrize("laid_out", [False, True], ids=["from packs", "laid out"])
@pytest.mark.parametrize("step", [1, 37, _PART, 2 * _PART + 1])
def test_all_pages_are_right_whatever_is_read_at_once(store, one, memory, tmp_path, laid_out, step):
    if laid_out:
        store.images.lay_out(store.manifest(one), tmp_path)
    with opened(store, one) as (pages, process):
        assert len(pages.descriptors()) == 2 + laid_out
        store.delete(one)  # whatever happens to the store
        all_are_right(process, memory, step if step > 1 else 61)
        assert (process._ahead._whole() is not None) == laid_out


def test_a_file_that_is_laid_out_and_rotted_is_not_used(store, one, memory, tmp_path):
    store.images.lay_out(store.manifest(one), tmp_path)
    (laid,) = (store.internals.directory / "laid").iterdir()
    flip(laid, 4096 * 300)
    with opened(store, one) as (_, process):
        all_are_right(process, memory, _PART)
        assert process._ahead._whole() is None


def test_a_file_that_is_laid_out_and_cut_is_not_used(store, one, memory, tmp_path):
    store.images.lay_out(store.manifest(one), tmp_path)
    (laid,) = (store.internals.directory / "laid").iterdir()
    laid.chmod(0o600)
    os.truncate(laid, 8192)
    with opened(store, one) as (_, process):
        all_are_right(process, memory, _PART)


def test_who_rests_keeps_no_pages_and_can_go_on(store, one, memory):
    with opened(store, one) as (_, process):
        read_on(process, FIRST, _PART)
        assert process._ahead._parts
        process.rest()
        assert not process._ahead._parts
        all_are_right(process, memory, _PART)


def read_through(process: ProcessPages) -> None:
    for at in range(0, PAGES - _PART, _PART):
        read_on(process, FIRST + at, _PART)


def read_one_by_one(process: ProcessPages) -> None:
    for at in range(0, PAGES, 32):
        process.read(FIRST + at, 1)


@pytest.mark.parametrize("read", [read_through, read_one_by_one])
def test_a_damaged_pack_is_told_to_whom_wants_its_pages(store, one, read):
    with opened(store, one) as (pages, process):
        path = Path(f"/proc/self/fd/{pages.descriptors()[0]}").resolve()
        flip(path, path.stat().st_size // 2)
        with pytest.raises(ObjectCorrupt):
            read(process)


WINDOW = 32


def test_windows_gathered_at_once_hold_what_their_pages_held(store, one, memory):
    first = FIRST - FIRST % WINDOW
    wanted = [
        FIRST,
        first + 40 * WINDOW,
        first + 5 * WINDOW,
        first + 6 * WINDOW,
        FIRST + 77,
        FIRST + PAGES - 1,
        FIRST,
    ]
    with opened(store, one) as (_, process):
        found = process.gather([*wanted, FIRST - 1, FIRST + PAGES, 3], WINDOW)
        assert [page for page, _ in found] == wanted[:-1]  # each once; what is in no run is left out
        for page, content in found:
            until = min(page - page % WINDOW + WINDOW, FIRST + PAGES)
            assert len(content.pages) == until - page
            for row in range(until - page):
                assert bytes_at(content, row) == memory[APART + page - FIRST + row].tobytes()
        assert process.gather([3], WINDOW) == []


def test_a_damaged_pack_is_told_to_who_gathers(store, one):
    with opened(store, one) as (pages, process):
        path = Path(f"/proc/self/fd/{pages.descriptors()[0]}").resolve()
        flip(path, path.stat().st_size // 2)
        with pytest.raises(ObjectCorrupt):
            process.gather(range(FIRST, FIRST + PAGES, WINDOW), WINDOW)

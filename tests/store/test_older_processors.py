"""Pages are hashed to the same, and compared alike, on processors that lack the instructions of this one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from relive.store.pages import page_tree
from relive.store.pages.held_pages import changed_words
from relive.store.pages.mapped import MappedPages
from relive.store.pages.page_pool import PagePool
from relive.store.pages.page_tree import PageTree
from relive.store.pages.table import NOWHERE
from relive.store.pages.xor_bases import XorBases

SOURCE = Path(__file__).parents[2] / "native" / "page_tree.c"
BUILDS = {"plain": "", "avx2": '__attribute__((target("avx2")))'}
FLAGS = Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The library for such a processor; compiled once, which takes longer than its tests."""

    @cache
    def library_for(build: str) -> Path:
        if build != "plain" and build not in FLAGS:
            pytest.skip(f"this processor has no {build}")
        library = tmp_path_factory.mktemp("built") / "page_tree.so"
        clones = f"-DCLONES={BUILDS[build]}"
        subprocess.run(
            ["gcc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-Wno-psabi", clones, SOURCE, "-o", library],
            check=True,
        )
        return library

    return library_for


def use(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_tree, "_LIBRARY", library)
    monkeypatch.setattr(page_tree, "load_library", page_tree.load_library.__wrapped__)


@pytest.mark.parametrize("build", BUILDS)
def test_each_build_hashes_as_blake3(
    built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, build: str
) -> None:
    use(built(build), monkeypatch)
    random = np.random.default_rng(7)
    pages = random.integers(0, 1 << 63, (140, 512)).astype(np.uint64)
    for count in (2, 3, 7, 8, 9, 31, 32, 33, 129):
        slots = random.integers(0, len(pages), count)
        assert PageTree.of(pages, slots).hash == blake3(pages[slots].tobytes()).hexdigest()


@pytest.mark.parametrize("build", [*BUILDS, None])
def test_changed_words_in_a_pool_are_those_of_pages_that_are_mapped(
    tmp_path: Path, built: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, build: str | None
):
    """Of pages that have changed in no word, in one, in as many as are kept so, in one more, and in all; against either base."""
    if build is not None:
        use(built(build), monkeypatch)
    random = np.random.default_rng(5)
    before, kept = (random.integers(0, 3, (60, 512), dtype=np.uint64) for _ in range(2))
    bases = XorBases(tmp_path)
    numbers = np.where(random.random(60) < 0.5, random.permutation(60), NOWHERE)
    bases.add(kept)
    pages = np.where((numbers != NOWHERE)[:, None], kept[numbers], before)
    for row, count in enumerate([0, 1, 31, 32, 33, 512] * 10):
        pages[row, random.choice(512, count, replace=False)] += np.uint64(1 << 40)
    pages[7] = before[9] = 0
    counts, changed = changed_words(MappedPages(pages), MappedPages(before), bases, numbers, 32)
    path = tmp_path / "record"
    path.write_bytes(pages.tobytes() + before.tobytes())
    pool = PagePool(tmp_path)
    with path.open("rb") as file:
        slots = pool.add(file.fileno(), np.arange(120) * 4096)
    ours, theirs = pool.hold(slots[:60]), pool.hold(slots[60:])
    found, pooled = changed_words(ours, theirs, bases, numbers, 32)
    assert (found == counts).all()
    assert {0, 1, 31, 32, 33, 512} <= set(counts.tolist())
    assert list(pooled.encoded(7)) == list(changed.encoded(7))
    assert (ours.some(slice(5, 9)).have_content() == pages[5:9].any(axis=1)).all()
    assert (theirs.some(np.arange(60)).have_content() == MappedPages(before).have_content()).all()

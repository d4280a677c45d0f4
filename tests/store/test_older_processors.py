"""Pages are hashed to the same on processors that lack the instructions of this one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from relive.store.pages import page_tree
from relive.store.pages.page_tree import PageTree

SOURCE = Path(__file__).parents[2] / "native" / "page_tree.c"
BUILDS = {"plain": "", "avx2": '__attribute__((target("avx2")))'}
FLAGS = Path("/proc/cpuinfo").read_text().partition("\nflags")[2].partition("\n")[0].split()


@pytest.mark.parametrize("build", BUILDS)
def test_each_build_hashes_as_blake3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, build: str) -> None:
    if build != "plain" and build not in FLAGS:
        pytest.skip(f"this processor has no {build}")
    library = tmp_path / "page_tree.so"
    clones = f"-DCLONES={BUILDS[build]}"
    subprocess.run(
        ["gcc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-Wno-psabi", clones, SOURCE, "-o", library],
        check=True,
    )
    monkeypatch.setattr(page_tree, "_LIBRARY", library)
    monkeypatch.setattr(page_tree, "load_library", page_tree.load_library.__wrapped__)
    random = np.random.default_rng(7)
    pages = random.integers(0, 1 << 63, (140, 512)).astype(np.uint64)
    for count in (2, 3, 7, 8, 9, 31, 32, 33, 129):
        slots = random.integers(0, len(pages), count)
        assert PageTree.of(pages, slots).hash == blake3(pages[slots].tobytes()).hexdigest()

"""Page files are mapped whole, and held a window at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from blake3 import blake3

from relive.store import Store
from relive.store.pages.mapped import WINDOW, hash_pages, map_pages, map_runs, unmap_pages

from .series import Service, take


def mapped_kib(*marks: str) -> int:
    """Of this process's memory, what it has of files with all of these in their path."""
    found, is_it = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_it = all(mark in line for mark in marks)
        elif is_it and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_pages_that_were_given_back_are_no_memory_of_the_process_and_can_be_read(tmp_path: Path):
    path = tmp_path / "pages"
    content = np.arange(1 << 20, dtype=np.uint64)
    path.write_bytes(content.tobytes())
    with path.open("rb") as file:
        pages = map_pages(file.fileno())
    assert int(pages.sum()) == int(content.sum())
    assert mapped_kib(str(path)) == 8192
    unmap_pages(pages[1024:])
    assert mapped_kib(str(path)) == 4096
    unmap_pages(pages)
    assert mapped_kib(str(path)) == 0
    assert int(pages.sum()) == int(content.sum())
    unmap_pages(np.empty((0, 512), np.uint64))  # of an empty file


def test_who_hashes_a_page_file_gives_it_back(tmp_path: Path):
    path = tmp_path / "pages"
    content = np.arange((2 * WINDOW + 1) * 512, dtype=np.uint64).tobytes()
    path.write_bytes(content)
    with path.open("rb") as file:
        pages = map_pages(file.fileno())
    for size in (len(content), len(content) - 4097, 5, 0):
        assert hash_pages(pages, size) == blake3(content[:size]).hexdigest()
        assert mapped_kib(str(path)) == 0


def test_runs_of_several_files_are_read_as_one_and_given_back(tmp_path: Path):
    names, content = ["one", "other"], np.arange(2 * 1024 * 512, dtype=np.uint64).reshape(2, 1024, 512)
    for name, its in zip(names, content, strict=True):
        (tmp_path / name).write_bytes(its.tobytes())
    runs = [(1, 1000, 24), (0, 3, 1), (0, 3, 500), (1, 0, 100)]
    with (tmp_path / "one").open("rb") as one, (tmp_path / "other").open("rb") as other:
        pages = map_runs([one.fileno(), other.fileno()], runs)
    wanted = np.concatenate([content[file, first : first + count] for file, first, count in runs])
    assert np.array_equal(pages, wanted)
    assert mapped_kib(str(tmp_path)) == 625 * 4
    unmap_pages(pages[25:525])
    assert mapped_kib(str(tmp_path)) == 125 * 4
    assert hash_pages(pages, wanted.nbytes) == blake3(wanted.tobytes()).hexdigest()
    assert mapped_kib(str(tmp_path)) == 0
    assert map_runs([], []).shape == (0, 512)


def test_a_commit_that_was_stored_holds_nothing_of_the_page_files(store: Store):
    """Neither of its own nor of those of the commit before, which have lost their names: the first, a later one, a key commit."""
    service = Service(pages=2 * WINDOW)
    parent = None
    for _ in range(3):
        parent = take(store, service, parent).id
        assert mapped_kib(str(store.internals.directory), "pages-") == 0
        service.live()

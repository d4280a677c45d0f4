"""Large files beside those that a service writes."""

from __future__ import annotations

import os
from pathlib import Path

from relive.check import datafiles
from relive.check.datafiles import large_files

_SIZE = 65 << 20


def test_large_files_below_a_place_are_found_once_and_links_are_not_followed(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    for path in (deep / "large", tmp_path / "small"):
        with path.open("wb") as file:
            file.truncate(_SIZE if path.name == "large" else 10)
    (tmp_path / "link").symlink_to(deep / "large")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = list(large_files(os.getpid(), [str(tmp_path), str(deep), str(tmp_path)], {}, _SIZE - 1))
    assert [(one.path, one.size) for one in found] == [(str(deep / "large"), _SIZE)]


def test_the_root_and_directories_of_the_kernel_are_not_searched() -> None:
    assert list(large_files(os.getpid(), ["/", "/proc", "/sys/kernel", "/dev/shm"], {}, 0)) == []


def test_the_search_ends(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}").touch()
    assert datafiles._MOST_LOOKED_AT >= 1000
    assert list(large_files(os.getpid(), [str(tmp_path)], {}, 0)) == []

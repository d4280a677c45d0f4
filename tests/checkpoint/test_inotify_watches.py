"""Paths behind inotify watches are found for CRIU, as far as there is time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.checkpoint import inotify_watches as tested
from relive.checkpoint.inotify_watches import watched_paths

# Works in its first argument, watches the others, and says that it does.
_WATCHES = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
watch = libc.inotify_init1(0)
for path in sys.argv[2:]:
    assert libc.inotify_add_watch(watch, path.encode(), 0x2) >= 0, path
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def watcher(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Watches a file, a directory, and a name that it was given by a link; it works in the directory above."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").touch()
    (tmp_path / "link").symlink_to("deep/er")
    paths = [tmp_path / "deep" / "er" / "file", tmp_path / "link"]
    command = [sys.executable, "-c", _WATCHES, tmp_path, *paths]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.communicate()


def test_what_is_watched_is_found_below_where_it_works(
    watcher: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    found = watched_paths(watcher.pid)
    assert sorted(found) == [str(tmp_path / "deep" / "er"), str(tmp_path / "deep" / "er" / "file")]


def test_a_search_that_takes_long_is_given_up(
    watcher: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "_LONGEST_SEARCH", -1.0)
    assert watched_paths(watcher.pid) == []


def test_without_a_watch_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "_search", None)
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    try:
        assert watched_paths(process.pid) == []
    finally:
        process.communicate()


def test_of_a_process_that_has_ended_nothing_is_known() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert watched_paths(process.pid) == []


def test_numbers_of_devices_are_read_as_the_kernel_writes_them(tmp_path: Path) -> None:
    """Inside the kernel a minor number has twenty bits, which the C library's has not side by side."""
    text = (
        "pos:\t0\nflags:\t02\ninotify wd:2 ino:1f sdev:800001 mask:2 ignored_mask:0 fhandle-bytes:c fhandle-type:81\n"
        "inotify wd:1 ino:ffffffffff sdev:10 mask:2 ignored_mask:0\nnonsense ino:1 sdev:2\n"
    )
    assert tested._parse(text) == [(os.makedev(8, 1), 0x1F), (os.makedev(0, 0x10), 0xFFFFFFFFFF)]

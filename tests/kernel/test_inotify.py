"""Waiting for a name in a directory."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from relive.kernel.inotify import AwaitedName, MadeNames


def test_the_name_is_told_once_and_others_are_not(tmp_path: Path) -> None:
    with AwaitedName(tmp_path, "files.img") as awaited:
        assert not awaited.has_come()
        (tmp_path / "other.img").touch()
        assert select.select([awaited], [], [], 5)[0] == [awaited]
        assert not awaited.has_come()
        (tmp_path / "files.im").touch()
        (tmp_path / "files.img").touch()
        (tmp_path / "files.img2").touch()
        assert awaited.has_come()
        assert not awaited.has_come()


def test_what_was_there_before_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "files.img").touch()
    with AwaitedName(tmp_path, "files.img") as awaited:
        (tmp_path / "files.img").write_text("again")
        assert not awaited.has_come()


def test_no_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        AwaitedName(tmp_path / "nowhere", "files.img")


def test_all_names_that_were_made_are_told_once(tmp_path):
    (tmp_path / "before").touch()
    with MadeNames(tmp_path) as names:
        assert names.read_new() == []
        for name in ("one", "two"):
            (tmp_path / name).touch()
        assert names.read_new() == [b"one", b"two"]
        assert names.read_new() == []

"""Paths in a tree that is not trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from relive.containers.restore.confined_paths import below, prepared


def test_directories_on_the_way_are_made(tmp_path: Path) -> None:
    assert prepared(tmp_path, "/a/b/c") == tmp_path / "a/b/c"
    assert (tmp_path / "a/b").is_dir() and not (tmp_path / "a/b/c").exists()
    assert below(tmp_path, "x/y") == tmp_path / "x/y" and not (tmp_path / "x").exists()


@pytest.mark.parametrize("path", ["", "/", "../x", "a/../../x", "led/x", "led", "file/x/y"])
def test_nothing_leads_out(tmp_path: Path, path: str) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "led").symlink_to(tmp_path)
    (top / "file").touch()
    assert prepared(top, path) is None
    assert sorted(one.name for one in tmp_path.iterdir()) == ["top"]

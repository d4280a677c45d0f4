"""The place of the rings is Relive's own, or nothing is put there."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from relive.agent.capsule import injection
from relive.errors import HostIncapable
from relive.model.life_paths import LifePaths


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the rings of all lives lie."""
    place = tmp_path / "memory"
    monkeypatch.setattr(injection, "IN_MEMORY", place)
    return place


@pytest.fixture
def paths(tmp_path: Path) -> LifePaths:
    (tmp_path / "life").mkdir()
    return LifePaths(tmp_path / "life")


def test_only_the_inner_directory_is_everybodys(place, paths):
    injection.make_rings(paths)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE(paths.rings.stat().st_mode) == 0o1777
    injection.remove_rings(paths)
    assert list(place.iterdir()) == []


def test_they_are_removed_when_the_home_is_gone(place, paths):
    injection.make_rings(paths)
    shutil.rmtree(paths.directory)
    injection.remove_rings(paths)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("how", ["of another user", "open to others", "a link", "a file"])
def test_a_place_that_somebody_else_has_taken_is_refused(place, paths, tmp_path, how):
    match how:
        case "of another user":
            place.mkdir(mode=0o700)
            os.chown(place, 65534, 65534)
        case "open to others":
            place.mkdir()
            place.chmod(0o755)
        case "a link":
            (tmp_path / "theirs").mkdir(mode=0o700)
            place.symlink_to(tmp_path / "theirs")
        case "a file":
            place.touch()
    with pytest.raises(HostIncapable) as caught:
        injection.make_rings(paths)
    assert caught.value.remedy
    assert not os.path.lexists(paths.rings)

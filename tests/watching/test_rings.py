"""The place of a container's rings: in memory, and still a directory when that memory is gone."""

from __future__ import annotations

import os

import pytest

from relive.config import Settings
from relive.errors import HostIncapable
from relive.kernel.mounts import unmount
from relive.watching.rings import make_place, remove_place


@pytest.fixture
def settings(tmp_path):
    return Settings(home=tmp_path / "home")


def test_its_container_can_start_after_a_reboot(settings):
    """Then nothing is mounted there, and everybody in the container may still write."""
    place = make_place(settings)
    unmount(place)
    assert place.is_dir()
    assert place.stat().st_mode & 0o7777 == 0o1777
    remove_place(settings, place)
    assert list((settings.home / "rings").iterdir()) == []


def test_it_is_removed_with_all_that_is_mounted_there(settings):
    place = make_place(settings)
    (place / "1-ab.ring").touch()
    remove_place(settings, place)
    assert not place.exists()


def test_a_directory_of_somebody_else_is_let_be(settings, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    remove_place(settings, theirs)
    assert theirs.exists()


def test_a_home_that_cannot_hold_it_is_named(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "rings").write_text("")
    with pytest.raises(HostIncapable) as caught:
        make_place(Settings(home=tmp_path / "home"))
    assert caught.value.remedy
    assert not os.path.ismount(tmp_path / "home" / "rings")

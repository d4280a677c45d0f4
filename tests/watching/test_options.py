"""The options that put the recorder into a container: plain words, for one container each, the image's own path kept."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import TargetUnknown, UsageError
from relive.sandbox.rootfs import INPROCESS_DIRECTORY, RINGS_DIRECTORY
from relive.watching.options import creation_options
from relive.watching.rings import remove_place


class PlayedEngine:
    """An engine that knows one image."""

    def __init__(self, **variables: str) -> None:
        self.variables = variables

    def image_environment(self, image: str) -> dict[str, str]:
        if image != "shop":
            raise TargetUnknown(f"there is no image {image!r}")
        return self.variables


@pytest.fixture
def settings(tmp_path):
    made = Settings(home=tmp_path / "home")
    yield made
    for place in (made.home / "rings").glob("*"):
        remove_place(made, place)


def read(options: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """(places on the host by places in the container, variables)."""
    volumes = [word.removeprefix("--volume=").split(":") for word in options if word.startswith("--volume=")]
    file = next(word.removeprefix("--env-file=") for word in options if word.startswith("--env-file="))
    lines = Path(file).read_text().splitlines()
    return {target: source for source, target, *_ in volumes}, dict(line.split("=", 1) for line in lines)


def test_rings_recorder_and_variables_are_given(settings):
    mounts, variables = read(creation_options(settings, PlayedEngine(SECRET="s", PYTHONPATH="/srv"), "shop"))
    rings = Path(mounts[str(RINGS_DIRECTORY)])
    assert stat.S_IMODE(rings.stat().st_mode) == 0o1777
    assert stat.S_IMODE(rings.parent.stat().st_mode) == 0o700
    assert os.path.ismount(rings)
    assert (Path(mounts[str(INPROCESS_DIRECTORY)]) / "sitecustomize.py").exists()
    assert variables.keys() == {"PYTHONPATH", "RELIVE_RECORDER"}
    assert variables["PYTHONPATH"] == f"{INPROCESS_DIRECTORY}:/srv"
    assert json.loads(variables["RELIVE_RECORDER"])["rings"] == str(RINGS_DIRECTORY)


def test_they_are_words_that_a_shell_hands_on_unharmed(settings):
    options = creation_options(settings, PlayedEngine(), "shop")
    assert all(word and not set(word) & set(" \t\n'\"*?[$\\") for word in options)


def test_two_containers_share_no_rings(settings):
    first, second = (read(creation_options(settings, PlayedEngine(), "shop"))[0] for _ in range(2))
    assert first[str(RINGS_DIRECTORY)] != second[str(RINGS_DIRECTORY)]


def test_an_image_that_is_not_there_leaves_no_place_behind(settings):
    with pytest.raises(TargetUnknown):
        creation_options(settings, PlayedEngine(), "other")
    assert not (settings.home / "rings").exists()


def test_a_home_that_no_option_can_hold_is_refused(tmp_path):
    settings = Settings(home=tmp_path / "my home")
    with pytest.raises(UsageError) as caught:
        creation_options(settings, PlayedEngine(), "shop")
    assert "RELIVE_HOME" in (caught.value.remedy or "")
    assert list((settings.home / "rings").iterdir()) == []

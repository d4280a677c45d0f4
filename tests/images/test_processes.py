"""Processes of a commit and where their threads stand, out of images that CRIU wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers.archive.checkpoints import FIRST, contents_of, plain
from relive.errors import ObjectCorrupt
from relive.images.processes import read_processes
from relive.images.registers import read_places


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name, data in contents_of(plain(FIRST)).items():
        if name.startswith("checkpoint/"):
            (tmp_path / name.removeprefix("checkpoint/")).write_bytes(data)
    return tmp_path


def test_a_process_is_told_as_it_was_within(images: Path) -> None:
    (process,) = read_processes(images)
    assert (process.pid, process.parent, process.command, process.threads, process.uid) == (
        1,
        0,
        "counter",
        1,
        0,
    )


def test_one_without_an_image_of_its_own_is_listed_all_the_same(images: Path) -> None:
    (images / "core-1.img").unlink()
    (process,) = read_processes(images)
    assert (process.pid, process.command) == (1, "")
    assert read_places(images) == []


def test_each_thread_stands_somewhere(images: Path) -> None:
    (place,) = read_places(images)
    assert place.thread == 1 and place.instruction and place.stack


def test_a_damaged_image_is_an_error_with_a_name(images: Path) -> None:
    (images / "core-1.img").write_bytes(b"nothing")
    with pytest.raises(ObjectCorrupt):
        read_places(images)
    with pytest.raises(ObjectCorrupt):
        read_processes(images)

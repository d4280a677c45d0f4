"""Long bodies are taken in as something hostile, and the oldest go when there are too many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relive.recording.bodies import Bodies, is_body_name


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    directory = tmp_path / "rings"
    directory.mkdir()
    return directory


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_oldest_go_also_those_of_an_earlier_agent(tmp_path, rings):
    kept = tmp_path / "bodies"
    for number in range(1, 7):
        if number in (1, 4):
            bodies = Bodies(kept, keep_bytes=25, most=100)
        source = rings / f"7-{number}.body"
        source.write_bytes(bytes([number]) * 10)
        bodies.move_in(source)
    assert names(kept) == ["7-5.body", "7-6.body"]
    assert (kept / "7-6.body").read_bytes() == bytes([6]) * 10
    assert names(rings) == []


def test_the_last_one_is_kept_however_long(tmp_path, rings):
    (rings / "7-1.body").write_bytes(bytes(50))
    Bodies(tmp_path / "bodies", keep_bytes=10, most=100).move_in(rings / "7-1.body")
    assert names(tmp_path / "bodies") == ["7-1.body"]


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "longer", "gone"])
def test_anything_else_is_refused(tmp_path, rings, kind):
    source = rings / "7-1.body"
    (tmp_path / "secret").write_text("of the host")
    match kind:
        case "link":
            source.symlink_to(tmp_path / "secret")
        case "fifo":
            os.mkfifo(source)
        case "directory":
            source.mkdir()
        case "longer":
            source.write_bytes(bytes(101))
    with pytest.raises(OSError):
        Bodies(tmp_path / "bodies", keep_bytes=1000, most=100).move_in(source)
    assert names(tmp_path / "bodies") == []


@pytest.mark.parametrize("name", ["../7-1.body", "7-1.body\n", "7.body", "", None, 7, "a-1.body"])
def test_no_other_names(name):
    assert not is_body_name(name)

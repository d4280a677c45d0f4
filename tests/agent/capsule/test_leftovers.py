"""What lies on the host beside a home, of which nobody has anything any more."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.agent.capsule import injection, leftovers
from relive.agent.capsule.leftovers import remove_unused
from relive.model.life_paths import LifePaths


@pytest.fixture
def in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    found = tmp_path / "relive"
    for module in (injection, leftovers):
        monkeypatch.setattr(module, "IN_MEMORY", found)
    monkeypatch.setattr(leftovers, "RUN_DIRECTORY", tmp_path / "run")
    return found


def life(directory: Path) -> LifePaths:
    directory.mkdir(parents=True)
    paths = LifePaths(directory)
    injection.make_rings(paths)
    (paths.rings / "2-a.ring").write_bytes(b"events")
    return paths


def test_rings_of_a_life_that_was_removed_are_removed(in_memory: Path, tmp_path: Path) -> None:
    """GIVEN a home that was deleted, and another that is there THEN only the first one's rings go."""
    gone, there = life(tmp_path / "gone/L1"), life(tmp_path / "there/L2")
    shutil.rmtree(gone.directory.parent)
    remove_unused()
    assert [one.name for one in in_memory.iterdir()] == ["L2"]
    assert (there.rings / "2-a.ring").read_bytes() == b"events"
    injection.remove_rings(there)
    remove_unused()
    assert not in_memory.exists()


def test_an_empty_place_of_a_life_that_is_not_told_goes_unless_it_is_being_made(in_memory: Path) -> None:
    """An older Relive left such directories, 120 of them on one host, and they stayed until it was booted again."""
    for name in ("old", "full", "new"):
        (in_memory / name).mkdir(parents=True)
    (in_memory / "full/2-a.ring").write_bytes(b"events")
    for name in ("old", "full"):
        os.utime(in_memory / name, times=(time.time() - 120,) * 2)
    remove_unused()
    assert sorted(one.name for one in in_memory.iterdir()) == ["full", "new"]


def test_rings_that_a_capsule_still_has_stay(in_memory: Path, tmp_path: Path) -> None:
    """GIVEN a service that runs on when its home was deleted."""
    gone = life(tmp_path / "gone/L1")
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"mount --bind {in_memory}/L1 {inside} && echo mounted && exec sleep 600"
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE) as capsule:
        assert capsule.stdout is not None and capsule.stdout.readline() == b"mounted\n"
        shutil.rmtree(gone.directory.parent)
        remove_unused()
        stayed = (in_memory / "L1/2-a.ring").exists()
        capsule.kill()
    assert stayed
    remove_unused()
    assert not in_memory.exists()


def test_what_comes_into_an_empty_place_while_mounts_are_looked_at_stays(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = in_memory / "old"
    place.mkdir(parents=True)
    os.utime(place, times=(time.time() - 120,) * 2)

    def mounts() -> Iterator[str]:
        (place / "2-a.ring").write_bytes(b"events")
        yield ""

    monkeypatch.setattr(leftovers, "_mounts", mounts)
    remove_unused()
    assert (place / "2-a.ring").read_bytes() == b"events"


def test_a_file_that_somebody_has_put_there_keeps_nothing_else(in_memory: Path, tmp_path: Path) -> None:
    gone = life(tmp_path / "gone/L1")
    shutil.rmtree(gone.directory)
    (in_memory / "stray").touch()
    os.utime(in_memory / "stray", times=(time.time() - 120,) * 2)
    remove_unused()
    assert [one.name for one in in_memory.iterdir()] == ["stray"]


def test_a_namespace_is_looked_at_through_another_process_when_one_has_ended(
    in_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = life(tmp_path / "gone/L1")
    inside = tmp_path / "inside"
    inside.mkdir()
    script = f"mount --bind {in_memory}/L1 {inside} && echo mounted && sleep 600 & wait"
    unshare = ["unshare", "--mount", "sh", "-c", script]
    with subprocess.Popen(unshare, stdout=subprocess.PIPE, start_new_session=True) as capsule:
        assert capsule.stdout is not None and capsule.stdout.readline() == b"mounted\n"
        namespace = Path(f"/proc/{capsule.pid}/ns/mnt").readlink()
        read, ended = Path.read_text, []

        def read_text(path: Path, *args: Any, **kwargs: Any) -> str:
            if path.name == "mountinfo" and not ended and (path.parent / "ns/mnt").readlink() == namespace:
                ended.append(path)
                raise ProcessLookupError
            return read(path, *args, **kwargs)

        monkeypatch.setattr(Path, "read_text", read_text)
        shutil.rmtree(gone.directory)
        remove_unused()
        os.killpg(capsule.pid, signal.SIGKILL)
    assert ended
    assert (in_memory / "L1/2-a.ring").exists()

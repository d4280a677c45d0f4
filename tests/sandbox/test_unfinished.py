"""What a killed `relive restore` leaves behind is swept by the next one, and nothing else is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from relive.kernel.claims import claimed
from relive.sandbox.unfinished import new_place, sweep_unfinished

HOLD = """
import sys
from pathlib import Path
from relive.kernel.claims import claimed
with claimed(Path(sys.argv[1])):
    print("claimed", flush=True)
    sys.stdin.read()
"""


def branch(branches: Path, name: str) -> Path:
    directory = branches / name
    (directory / "images").mkdir(parents=True)
    (directory / "images" / "pages-1.img").write_bytes(b"pages")
    return directory


def test_nobody_else_can_enter_what_lies_in_a_branch(tmp_path: Path) -> None:
    branches = tmp_path / "home" / "branches"
    branches.mkdir(parents=True, mode=0o755)
    with new_place(branches) as place:
        assert branches.stat().st_mode & 0o777 == 0o700
        assert (place / "rings").stat().st_mode & 0o7777 == 0o1777


def test_a_place_is_swept_at_once_when_nobody_claims_it_any_more(tmp_path: Path) -> None:
    with new_place(tmp_path) as place:
        sweep_unfinished(tmp_path, "state.json")
        assert (place / "io").is_dir()
    sweep_unfinished(tmp_path, "state.json")
    assert not place.exists()


def test_no_sweeper_ever_takes_what_is_being_made(tmp_path: Path) -> None:
    sweeper = os.fork()
    if sweeper == 0:
        while True:  # it is killed below
            sweep_unfinished(tmp_path, "state.json")
    try:
        for _ in range(1000):
            with new_place(tmp_path) as place:
                assert (place / "rings").is_dir()
    finally:
        os.kill(sweeper, signal.SIGKILL)
        os.waitpid(sweeper, 0)


def test_only_what_nobody_makes_any_more_is_swept(tmp_path: Path) -> None:
    left = branch(tmp_path, "left")
    made = branch(tmp_path, "made")
    finished = branch(tmp_path, "finished")
    (finished / "state.json").touch()
    with claimed(made):
        sweep_unfinished(tmp_path, "state.json")
    assert not left.exists()
    assert {path.name for path in tmp_path.iterdir()} == {made.name, finished.name}


def test_a_claim_ends_with_the_process_that_was_killed(tmp_path: Path) -> None:
    made = branch(tmp_path, "made")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(made)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    assert holder.stdout.readline() == b"claimed\n"
    sweep_unfinished(tmp_path, "state.json")
    assert made.exists()
    holder.kill()
    holder.wait()
    sweep_unfinished(tmp_path, "state.json")
    assert not made.exists()
    holder.stdout.close()
    holder.stdin.close()


def test_what_is_not_there_cannot_be_claimed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), claimed(tmp_path / "gone"):
        pass

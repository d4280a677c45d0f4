"""What is claimed stays; what a killed process left is removed, whether file or directory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from relive.kernel.claims import claimed, remove_left_over

HOLD = """
import sys
from pathlib import Path
from relive.kernel.claims import claimed
with claimed(Path(sys.argv[1])):
    print("claimed", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(params=["file", "directory"])
def left(tmp_path, request):
    path = tmp_path / "left"
    if request.param == "file":
        path.write_bytes(b"half")
    else:
        (path / "images").mkdir(parents=True)
        (path / "images" / "pages-1.img").write_bytes(b"half")
    return path


def test_what_nobody_claims_is_removed(left):
    assert remove_left_over(left)
    assert not left.exists()


def test_what_somebody_claims_stays_until_its_process_is_killed(left):
    command = [sys.executable, "-c", HOLD, str(left)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert not remove_left_over(left)
        assert left.exists()
        with pytest.raises(BlockingIOError), claimed(left, at_once=True):
            pass
        holder.kill()
    assert remove_left_over(left)


def test_what_is_not_left_over_by_its_looks_stays(left):
    assert not remove_left_over(left, lambda facts: facts.st_mtime > 1 << 62)
    assert left.exists()


def test_a_link_and_what_it_leads_to_stay(tmp_path, left):
    link = tmp_path / "link"
    link.symlink_to(left)
    assert not remove_left_over(link)
    assert link.is_symlink() and left.exists()


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert remove_left_over(tmp_path / "pipe")


def test_what_is_gone_is_no_error(tmp_path):
    assert not remove_left_over(tmp_path / "gone")

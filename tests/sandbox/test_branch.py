"""Ending a branch whose processes ended long ago: their numbers may be others' by now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from relive.model.branch import BranchFacts, Clock, Publication
from relive.model.commit import CommitId
from relive.sandbox.branch import Branch


def test_numbers_that_are_strangers_by_now_are_not_signalled(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        pid = stranger.pid
        facts = BranchFacts(
            id="b",
            commit=CommitId("0" * 64),
            name="service",
            init=pid,
            init_started=1,
            root=pid,
            clock=Clock.NOW,
            created_wall_ns=0,
            restore_us=0,
            stubs=pid,
            stubs_started=1,
            publications=[Publication(host="127.0.0.1", host_port=1, port=1, forwarder=pid)],
        )
        directory = tmp_path / "branch"
        directory.mkdir()
        branch = Branch(directory, directory, facts)
        branch.stop()
        assert stranger.poll() is None and not directory.exists()
        stranger.communicate(b"\n")
    assert stranger.returncode == 0

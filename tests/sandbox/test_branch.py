"""What is done to a branch from outside of it, without one that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relive.config import Settings
from relive.kernel import procfs
from relive.model.branch import BranchFacts, Clock, Publication
from relive.model.commit import CommitId
from relive.sandbox import branch as branch_room
from relive.sandbox import restoring
from relive.sandbox.branch import Branch, branched_commits, name_commit
from relive.sandbox.limits import OVERHEAD
from relive.sandbox.restore_request import RestoreRequest
from relive.sandbox.unfinished import new_place


def _facts(commit: str = "0" * 64, **given: Any) -> BranchFacts:
    return BranchFacts(
        id="b",
        commit=CommitId(commit),
        name="service",
        clock=Clock.NOW,
        created_wall_ns=0,
        restore_us=0,
        **given,
    )


def test_numbers_that_are_strangers_by_now_are_not_signalled(tmp_path: Path) -> None:
    """Its processes ended long ago."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        pid = stranger.pid
        facts = _facts(
            init=pid,
            init_started=1,
            root=pid,
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


def test_the_commits_of_living_branches_are_known(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert branched_commits(settings) == set()
    own, stat = os.getpid(), procfs.read_stat(os.getpid())
    assert stat is not None
    started = stat.start_ticks
    for commit, begun in (
        ("1" * 64, started),
        ("2" * 64, started + 1),
    ):  # the second is another process by now
        directory = settings.branches / commit[:10]
        directory.mkdir(parents=True)
        facts = _facts(commit, init=own, init_started=begun, root=own)
        (directory / "state.json").write_text(facts.model_dump_json())
    assert branched_commits(settings) == {CommitId("1" * 64)}


def test_a_commit_that_is_being_restored_is_known_before_its_branch_has_a_state(tmp_path: Path) -> None:
    """GIVEN retention that looks meanwhile THEN it keeps the commit, whose images are being read."""
    settings = Settings(home=tmp_path)
    with new_place(settings.branches) as directory:
        assert branched_commits(settings) == set()
        name_commit(directory, CommitId("3" * 64))
        assert branched_commits(settings) == {CommitId("3" * 64)}
        stopped = _facts(CommitId("3" * 64), init=os.getpid(), init_started=1, root=1)
        (directory / "state.json").write_text(stopped.model_dump_json())
        assert branched_commits(settings) == set()


def test_a_branch_that_gets_its_state_while_retention_looks_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, commit, stat = Settings(home=tmp_path), CommitId("3" * 64), procfs.read_stat(os.getpid())
    assert stat is not None
    with new_place(settings.branches) as directory:
        name_commit(directory, commit)
        listed = branch_room.list_branches

        def list_as_it_gets_one(settings: Settings) -> list[Branch]:
            found = listed(settings)
            facts = _facts(commit, init=os.getpid(), init_started=stat.start_ticks, root=os.getpid())
            (directory / "state.json").write_text(facts.model_dump_json())
            return found

        monkeypatch.setattr(branch_room, "list_branches", list_as_it_gets_one)
        assert branched_commits(settings) == {commit}


def test_who_restores_says_of_which_commit_before_he_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, seen = Settings(home=tmp_path), list[set[CommitId]]()
    monkeypatch.setattr(restoring._Making, "make", lambda *_: seen.append(branched_commits(settings)))
    nobody: Any = None
    _, ownership = restoring._restore_claimed(
        settings, nobody, CommitId("4" * 64), RestoreRequest(), nobody, 0.0
    )
    ownership.close()
    assert seen == [{CommitId("4" * 64)}]


def test_memory_of_its_capsule_is_less_what_restored_it_and_its_rings(tmp_path: Path) -> None:
    """Rings are memory of the capsule, and files of the host where they are a branch's."""
    group, limit = tmp_path / "group", 100 << 20
    group.mkdir()
    (group / "memory.current").write_text("1\n")
    (group / "memory.max").write_text(f"{limit + OVERHEAD}\n")
    branch = Branch(tmp_path, tmp_path, _facts(init=1, init_started=1, root=1, groups=[str(group)]))
    branch.rings.mkdir()
    for name, size in (("2-a.ring", 4096), ("3-b.ring", 8192), ("answers", 512)):
        (branch.rings / name).write_bytes(bytes(size))
    branch.have_memory_of_capsule()
    assert int((group / "memory.max").read_text()) == limit - 4096 - 8192

"""Commits on top of others of a parent with two workers, compared page for page with the memory of each. With the real CRIU."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.checkpoint.micro_tracker import MicroTracker
from relive.kernel import procfs

from .test_micro_commits import PROGRAMS, TRIES, Taking, Told


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    found = Taking(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Told]:
    found = Told(sys.executable, PROGRAMS / "micro_tree.py", tmp_path / "log")
    yield found
    found.end()


def test_all_processes_are_committed_as_they_stand(tree: Told, taking: Taking) -> None:
    taking.base(tree.pid)
    for _ in range(4):
        taking.follow(tree, "count")
    assert len(taking.frozen) == 3
    assert int(tree.ask("count")) >= 15


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("fork", "its processes are others"),
        ("end", "its processes are others"),
        ("execute", ""),
        ("open anew", "something has changed: kin"),
        ("pipe", "something has changed: fd"),
    ],
)
def test_what_changes_in_one_process_leads_to_a_new_base_of_all(
    tree: Told, taking: Taking, word: str, reason: str
) -> None:
    taking.base(tree.pid)
    taking.reasons.clear()
    tree.ask(word)
    assert not taking.commit(tree.pid)
    assert any(reason in said for said in taking.reasons)


@pytest.mark.parametrize("victim", ["leader", "tracker", "worker"])
def test_whoever_dies_amid_a_commit_the_tree_goes_on(
    tree: Told, taking: Taking, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    taking.base(tree.pid)
    before = int(tree.ask("count"))
    go = MicroTracker.go

    def kill(tracker: MicroTracker) -> None:
        others = procfs.children_of(tracker.pid)
        worker = procfs.children_of(tree.pid)[0]
        os.kill({"leader": tracker.pid, "tracker": others[0], "worker": worker}[victim], signal.SIGKILL)
        go(tracker)

    monkeypatch.setattr(MicroTracker, "go", kill)
    assert not taking.commit(tree.pid)
    if victim == "worker":
        assert int(tree.ask("reap")) == 4  # of the two that are left
    else:
        assert int(tree.ask("count")) == before + 3
    monkeypatch.setattr(MicroTracker, "go", go)
    taking.follow(tree, "count")

"""Commits on top of others of a parent with two workers, compared page for page with the memory of each. With the real CRIU."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.checkpoint.micro_tracker import MicroTracker
from relive.images.pagemap import read_pagemap
from relive.kernel import procfs

from .test_micro_commits import PROGRAMS, Taking, Told

PAGE = 4096


class TakingTrees(Taking):
    """Compares what the processes share, too; ``shared``: by inode."""

    shared: dict[int, bytes]

    def note(self, root: int) -> None:
        super().note(root)
        self.shared = {}
        for pid in procfs.tree_of(root):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                if "rw-s" in line and "/dev/zero" in line:
                    span, _, _, _, inode, *_ = line.split()
                    span = "-".join(word.lstrip("0") for word in span.split("-"))
                    self.shared[int(inode)] = Path(f"/proc/{pid}/map_files/{span}").read_bytes()

    def check(self, images: Path) -> None:
        super().check(images)
        assert len(self.shared) == 1
        for inode, frozen in self.shared.items():
            name = f"pagemap-shmem-{inode}.img"
            number, runs = read_pagemap(name, (images / name).read_bytes())
            pages, committed, at = (images / f"pages-{number}.img").read_bytes(), bytearray(len(frozen)), 0
            for first, count in runs:
                committed[first * PAGE : (first + count) * PAGE] = pages[at : at + count * PAGE]
                at += count * PAGE
            assert at == len(pages)
            assert committed == frozen


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    found = TakingTrees(tmp_path / "home", monkeypatch)
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

    def kill_and_go(tracker: MicroTracker) -> None:
        others = procfs.children_of(tracker.pid)
        worker = procfs.children_of(tree.pid)[0]
        os.kill({"leader": tracker.pid, "tracker": others[0], "worker": worker}[victim], signal.SIGKILL)
        go(tracker)

    monkeypatch.setattr(MicroTracker, "go", kill_and_go)
    assert not taking.commit(tree.pid)
    if victim == "worker":
        assert int(tree.ask("reap")) == 4  # of the two that are left
    else:
        assert int(tree.ask("count")) == before + 3
    monkeypatch.setattr(MicroTracker, "go", go)
    taking.follow(tree, "count")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(300, 320))
def test_nothing_is_lost_whichever_tracker_dies_whenever(tree: Told, taking: Taking, seed: int) -> None:
    """``pytest -m soak tests/checkpoint/test_micro_trees.py``: 1,000 kills at any moment of a commit."""
    chance = random.Random(seed)
    counted = 0
    for number in range(100):
        tracker = taking.micro._tracker
        if number % 2 and tracker is not None:
            victim = chance.choice([tracker.pid, *procfs.children_of(tracker.pid)])
            threading.Timer(chance.choice([0.001, 0.01, 0.1]) * chance.random(), kill, [victim]).start()
        taking.micro._refusals = 0
        taking.commit(tree.pid)
        counted += 3
        assert int(tree.ask("count")) == counted


def kill(pid: int) -> None:
    """A tracker, which may have ended meanwhile."""
    with contextlib.suppress(OSError):
        if Path(f"/proc/{pid}/comm").read_text() == "relive-micro\n":
            os.kill(pid, signal.SIGKILL)

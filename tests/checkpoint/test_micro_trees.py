"""Commits on top of others of a parent with two workers, compared page for page with the memory of each. With the real CRIU."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relive.checkpoint.micro_tracker import MicroTracker
from relive.images.pagemap import read_pagemap
from relive.kernel import procfs

from .test_micro_commits import PROGRAMS, Taking, Told

PAGE = 4096
FUTEX = "202"  # the number of the system call


class TakingTrees(Taking):
    """Compares what the processes share, too; ``shared``: by inode."""

    shared: dict[int, bytes]

    def note(self, root: int) -> None:
        super().note(root)
        self.shared = {}
        for pid in procfs.tree_of(root):
            for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
                span, rights, _, _, inode, *name = line.split()
                if rights != "rw-s" or not name or not name[0].startswith(("/dev/zero", "/SYSV")):
                    continue
                if name[0].startswith("/SYSV"):  # what lies behind its end is in no file
                    start, end = (int(word, 16) for word in span.split("-"))
                    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
                        self.shared[int(inode)] = os.pread(memory.fileno(), end - start, start)
                else:
                    span = "-".join(word.lstrip("0") for word in span.split("-"))
                    self.shared[int(inode)] = Path(f"/proc/{pid}/map_files/{span}").read_bytes()

    def check(self, images: Path) -> None:
        super().check(images)
        assert self.shared
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


WHAT_LEADS_TO_A_NEW_BASE = {
    "open anew": "something has changed: kin",
    "pipe": "something has changed: fd",
    "fork": "its processes are others",
    "execute": "",
}


def test_all_are_committed_as_they_stand_until_one_changes_what_is_not_followed(
    tree: Told, taking: Taking
) -> None:
    """The full commit that is taken then is the base of all for the next."""
    taking.base(tree.pid)
    for _ in range(2):
        taking.follow(tree, "count")
    assert len(taking.frozen) == 3
    assert int(tree.ask("count")) >= 9
    for word, reason in WHAT_LEADS_TO_A_NEW_BASE.items():
        if taking.micro._base is None:  # on a loaded machine a thread may not stop in time
            taking.base(tree.pid)
        taking.reasons.clear()
        tree.ask(word)
        assert not taking.commit(tree.pid)
        assert any(reason in said for said in taking.reasons)
        taking.micro._refusals = 0


def test_whoever_dies_amid_a_commit_the_tree_goes_on(
    tree: Told, taking: Taking, monkeypatch: pytest.MonkeyPatch
) -> None:
    taking.base(tree.pid)
    before = int(tree.ask("count"))
    victims: list[Callable[[MicroTracker], int]] = [
        lambda one: one.pid,
        lambda one: procfs.children_of(one.pid)[0],
        lambda _: procfs.children_of(tree.pid)[0],
    ]
    go = MicroTracker.go

    def kill_and_go(tracker: MicroTracker) -> None:
        os.kill(victims.pop(0)(tracker), signal.SIGKILL)
        go(tracker)

    monkeypatch.setattr(MicroTracker, "go", kill_and_go)
    for number in (1, 2):
        if taking.micro._base is None:
            taking.base(tree.pid)
        assert not taking.commit(tree.pid)
        assert len(victims) == 3 - number
        assert int(tree.ask("count")) == before + 3 * number
        taking.micro._refusals = 0
    if taking.micro._base is None:
        taking.base(tree.pid)
    assert not taking.commit(tree.pid)
    assert not victims
    assert int(tree.ask("reap")) > 0  # by the two that are left
    monkeypatch.setattr(MicroTracker, "go", go)
    taking.follow(tree, "count")


def test_nobody_is_held_while_a_tracker_is_not_ready(tree: Told, taking: Taking) -> None:
    """A process that is seized would stand still at its next signal until that one comes."""
    taking.base(tree.pid)
    tracker = taking.micro._tracker
    assert tracker is not None
    slow = procfs.children_of(tracker.pid)[0]
    os.kill(slow, signal.SIGSTOP)
    committing = threading.Thread(target=taking.commit, args=[tree.pid])
    committing.start()
    while committing.is_alive() and not waits_for_others(tracker.pid):
        pass
    tracers = {procfs.status_field(pid, "TracerPid") for pid in procfs.tree_of(tree.pid)}
    os.kill(slow, signal.SIGCONT)
    committing.join()
    assert tracers == {"0"}


def waits_for_others(tracker: int) -> bool:
    return Path(f"/proc/{tracker}/syscall").read_text().split()[0] == FUTEX


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

"""Lazy restore: a branch runs before its memory is there, sees only right pages, and ends when they cannot come any more.

One program (``programs/lazy_memory.c``) is committed once; it knows the content of each of its pages.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from relive.containers.restore.restoring import restore
from relive.errors import MemoryLost
from relive.kernel import procfs
from relive.kernel.namespaces import in_network_of
from relive.model.commit import CommitId
from relive.sandbox import restoring
from relive.sandbox.branch import Branch
from relive.sandbox.lazy.pager import Pager
from relive.sandbox.lazy.space import WINDOW
from relive.sandbox.lazy.touched import TouchedMemory
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store
from support.ports import free_port
from support.waiting import LIMIT, eventually

from .harness import PROGRAMS, Commit, Relive, compiled

MEGABYTES = 320
PAGES = MEGABYTES * 256


@dataclass
class Service:
    """The committed program, and branches of it."""

    relive: Relive
    commit: Commit
    port: int
    wish: Path
    branches: list[Branch] = field(default_factory=list)

    def restore(self, wish: str = "") -> Branch:
        """Restore lazily; the branch does as ``wish`` the moment it runs."""
        self.wish.write_text(wish)
        with contextlib.closing(Store(self.relive.settings.store)) as store:
            branch = restore(
                self.relive.settings, store, CommitId(self.commit.id), RestoreRequest(lazily=True)
            )
        self.branches.append(branch)
        return branch

    def ask(self, branch: Branch, word: str) -> str:
        """What the program answers in the branch."""

        def connect() -> socket.socket:
            return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

        with in_network_of(branch.facts.init, connect) as connection:
            connection.sendall(word.encode())
            return connection.recv(100).decode()


@pytest.fixture(scope="module")
def committed() -> Iterator[Service]:
    home, place = Path(tempfile.mkdtemp(prefix="relive-")), Path(tempfile.mkdtemp(prefix="relive-lazy-"))
    relive = Relive(home, "lazy")
    port = free_port()
    try:
        program = compiled(PROGRAMS / "lazy_memory.c", place)
        capsule = relive.run(program, str(port), str(MEGABYTES), place / "wish")
        eventually(lambda: "ready" in relive.output(capsule), "the memory is filled")
        yield Service(relive, relive.commit(capsule), port, place / "wish")
    finally:
        relive.close()
        shutil.rmtree(home)
        shutil.rmtree(place)


@pytest.fixture
def service(committed: Service) -> Iterator[Service]:
    yield committed
    while committed.branches:
        committed.branches.pop().stop()


def ended(branch: Branch) -> bool:
    """Process 1, and with it all of the branch, is gone within the limit."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(branch.facts.init)
        gone, _, _ = select.select([handle], [], [], LIMIT)
        os.close(handle)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(branch.facts.init, os.WNOHANG)
        return bool(gone)
    return True


def pager_of(branch: Branch) -> int:
    assert branch.facts.pager is not None
    return branch.facts.pager


def is_complete(branch: Branch) -> bool:
    memory = branch.memory
    return memory is not None and memory.is_complete


def test_it_answers_before_its_memory_is_there_and_all_of_it_is_right(service: Service) -> None:
    branch = service.restore()
    there, pages = (int(number) for number in service.ask(branch, "there").split())
    assert pages == PAGES
    assert there < PAGES / 2  # when it ran first
    assert service.ask(branch, "check") == "ok"
    eventually(lambda: is_complete(branch), "all is there")
    eventually(lambda: not procfs.exists(pager_of(branch)), "the page daemon ends by itself")
    assert service.ask(branch, "forked") == "ok"  # nobody has to read a fork event any more
    assert branch.memory_lost is None
    assert branch.is_alive


def test_an_untouched_branch_gets_its_memory_too(service: Service) -> None:
    branch = service.restore()
    eventually(lambda: is_complete(branch), "all is there")
    assert service.ask(branch, "threads") == "ok"


def test_what_branches_touched_first_is_there_when_the_next_one_runs(service: Service) -> None:
    known = TouchedMemory(service.relive.home, CommitId(service.commit.id))
    with (
        contextlib.closing(Store(service.relive.settings.store)) as store,
        store.images.open_pages(store.manifest(CommitId(service.commit.id))) as pages,
    ):
        runs = [(pid, *run) for pid, process in pages.processes.items() for run in process.runs]
    pid, first, length = max(runs, key=lambda one: one[2])
    # As if branches had touched the middle of the memory; and what is of no process or no mapping.
    middle = (first + length // 2) // WINDOW * WINDOW
    windows = [middle + number * WINDOW for number in range(0, 100, 2)]
    known.write({pid: [3, *windows], 999_999: [middle]})
    branch = service.restore()
    there, _ = (int(number) for number in service.ask(branch, "there").split())
    assert there >= len(windows) * WINDOW
    assert service.ask(branch, "check") == "ok"
    branch.stop()
    eventually(lambda: set(known.read()[pid]) - {3, *windows}, "what else was touched is known now")


@pytest.mark.parametrize("word", ["forked", "threads"])
def test_children_and_threads_see_the_right_memory_while_it_comes(service: Service, word: str) -> None:
    assert service.ask(service.restore(), word) == "ok"


def test_memory_that_is_freed_moved_unmapped_and_enlarged_meanwhile_is_right(service: Service) -> None:
    branch = service.restore("change")
    assert int(service.ask(branch, "there").split()[0]) < PAGES / 2
    assert service.ask(branch, "changed") == "ok"
    eventually(lambda: is_complete(branch), "what is left of it is there")


def test_several_branches_at_once(service: Service) -> None:
    branches = [service.restore() for _ in range(3)]
    assert [service.ask(branch, "check") for branch in branches] == ["ok"] * 3


# Without forks where both are killed: for a child just forked there must be one of them (docs/limits.md).
VICTIMS: dict[str, tuple[str, Callable[[int], list[int]]]] = {
    "page daemon": ("stress", lambda pager: [pager]),
    "keeper": ("stress", procfs.children_of),
    "both": ("touch", lambda pager: [pager, *procfs.children_of(pager)]),
    "both, the keeper first": ("touch", lambda pager: [*procfs.children_of(pager), pager]),
}


@pytest.mark.parametrize("victims", VICTIMS)
def test_when_the_daemons_are_killed_the_branch_ends_and_has_seen_no_wrong_page(
    service: Service, victims: str
) -> None:
    wish, victims_of = VICTIMS[victims]
    branch = service.restore(wish)
    pids = victims_of(pager_of(branch))
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert ended(branch)
    assert "WRONG" not in branch.log("stdout").read_text()
    lost = branch.memory_lost
    assert lost is not None and lost.remedy is not None
    assert "was not all there" in lost.message and "killed" in (lost.cause or "")
    eventually(lambda: not any(procfs.exists(pid) for pid in pids), "the other one ends, too")


@pytest.mark.parametrize("moment", [2, 40])
def test_a_page_daemon_killed_while_children_are_forked(service: Service, moment: int) -> None:
    """The later, the more is there: a percentage that ``memory.json`` has shown before."""
    branch = service.restore("stress")
    eventually(lambda: (memory := branch.memory) is not None and memory.percent >= moment, f"{moment} %")
    os.kill(pager_of(branch), signal.SIGKILL)
    if ended_or_complete(branch):
        assert branch.memory_lost is not None
    assert "WRONG" not in branch.log("stdout").read_text()


def ended_or_complete(branch: Branch) -> bool:
    """It has ended; False if all of its memory had come before."""
    return not is_complete(branch) and ended(branch)


def test_a_page_daemon_killed_before_anything_runs(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = Pager.wait_until_held

    def killed(self: Pager) -> None:
        wait(self)
        os.kill(self.pid, signal.SIGKILL)

    monkeypatch.setattr(Pager, "wait_until_held", killed)
    with contextlib.suppress(MemoryLost):
        branch = service.restore("stress")  # CRIU may have said its last word already
        assert ended(branch)
        assert "WRONG" not in branch.log("stdout").read_text()
        assert branch.memory_lost is not None
        branch.stop()
    assert list(service.relive.settings.branches.iterdir()) == []


def test_a_page_daemon_is_given_up_with_a_branch_that_cannot_be_begun(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(restoring, "BranchBuilder", fail)
    before = set(procfs.children_of(os.getpid()))
    with pytest.raises(RuntimeError):
        service.restore()
    assert set(procfs.children_of(os.getpid())) <= before
    assert list(service.relive.settings.branches.iterdir()) == []


def test_stop_ends_the_page_daemon(service: Service) -> None:
    branch = service.restore("stress")
    pager = pager_of(branch)
    keepers = procfs.children_of(pager)
    branch.stop()
    assert not procfs.exists(pager)
    assert not branch.directory.exists()
    eventually(lambda: not any(procfs.exists(pid) for pid in keepers), "the keeper ends")


def test_a_page_daemon_does_not_outlive_its_branch(service: Service) -> None:
    branch = service.restore("stress")
    os.kill(branch.facts.init, signal.SIGKILL)
    eventually(lambda: not procfs.exists(pager_of(branch)), "the page daemon ends")
    assert branch.memory_lost is None


def test_a_pack_damaged_meanwhile_stops_the_branch_and_is_told(service: Service) -> None:
    packs = sorted((service.relive.home / "store" / "packs").iterdir(), key=lambda path: path.stat().st_size)
    data = packs[-1].read_bytes()
    try:
        branch = service.restore()
        with packs[-1].open("r+b") as file:  # the same file: the daemon has it open
            file.seek(len(data) // 8)
            file.write(bytes(len(data) * 3 // 4))
        assert ended(branch)
        lost = branch.memory_lost
        assert lost is not None and "damaged" in (lost.cause or "")
        (row,) = (one for one in service.relive("ps", "--all") if one["id"] == branch.facts.id)
        assert row["state"] == "ended (its memory was not all there)"
        assert row["memory"] < 100
        assert service.relive("logs", branch.facts.id)["memory_lost"]["code"] == "memory-lost"
    finally:
        packs[-1].write_bytes(data)


def test_a_commit_dropped_meanwhile_does_no_harm(service: Service) -> None:
    branch = service.restore()
    packs = service.relive.home / "store" / "packs"
    aside = packs.with_name("aside")
    packs.rename(aside)
    try:
        assert service.ask(branch, "check") == "ok"
    finally:
        aside.rename(packs)


def test_the_command_line_tells_how_much_is_there(service: Service) -> None:
    answer = service.relive("restore", "--lazy", service.commit.id)
    rows = {row["id"]: row for row in service.relive("ps")}
    assert 0 <= rows[answer["id"]]["memory"] <= 100
    service.relive("stop", answer["id"])

"""10,000 commits on top of others, each compared with all memory as it was read in the pause by somebody else. With the real CRIU.

    pytest -m soak tests/checkpoint/test_micro_soak.py      (or a part: -k asyncio)
    benchmarks/soak.py                                      with faults and more programs, for as long as is said

A commit that was taken whole is compared as well, and not counted. Of memory_moves most are: see test_micro_commits, for_long.
Some commits, drawn at random, are stored and restored, and the branch is compared before it runs: memory, registers, open files.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from checkpoint.test_copied_ahead import EMPTY, Pages, differences, memory_of
from relive.checkpoint.dumped import Capture
from relive.containers.restore.restoring import restore
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_first
from relive.kernel import procfs, ptrace
from relive.model.branch import Clock
from relive.model.commit import CommitId
from relive.sandbox import builder, restoring
from relive.sandbox.restore_request import RestoreRequest
from support.waiting import eventually

from .test_micro_commits import PROGRAMS, Taking, Told
from .test_micro_trees import TakingTrees

LIVES, COMMITS, TRIES_EACH = 67, 50, 4
RESTORED_OF = 12  # one of so many
OBJECTS = ("count", "objects", "map", "unmap", "give back", "free", "move", "write", "break")
IN_A_CALL = (
    2  # bytes by which CRIU sets a thread back that it took out of a system call, so that it is made again
)
# Of struct user_regs_struct, as CRIU calls them.
REGISTERS = "r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di ip sp fs_base gs_base".split()
OF_THE_KERNEL = {name: f"r{name}" for name in ("bp", "bx", "ax", "cx", "dx", "si", "di", "ip", "sp")}
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@dataclass
class Stands:
    """A process that stands still.

    Attributes:
        threads: instruction and stack pointers.
        files: of each regular one its path, position and flags, by descriptor.
        shared: the memory that it shares with others, by address.
    """

    threads: dict[int, tuple[int, int]]
    files: dict[int, tuple[str, int, int]]
    shared: dict[int, bytes]


def look_at(pid: int) -> Stands | None:
    """None: it does not stand still."""
    threads = {}
    for thread in procfs.threads_of(pid):
        found = procfs.registers_of(pid, thread)
        inside = procfs.innermost_pid(pid, thread)
        if found is None or inside is None:
            return None
        threads[inside] = found
    files = {}
    for number in map(int, os.listdir(f"/proc/{pid}/fd")):
        path = os.readlink(f"/proc/{pid}/fd/{number}")
        if path.startswith("/") and not path.startswith("/dev/") and "/outlet-" not in path:
            told = Path(f"/proc/{pid}/fdinfo/{number}").read_text().split()
            files[number] = Path(path).name.removesuffix(" (deleted)"), int(told[1]), int(told[3], 8)
    shared = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if "rw-s" in line and "/dev/zero" in line:
            first, _ = line.split()[0].split("-")
            span = "-".join(word.lstrip("0") for word in line.split()[0].split("-"))
            shared[int(first, 16)] = Path(f"/proc/{pid}/map_files/{span}").read_bytes()
    return Stands(threads, files, shared)


class Restores:
    """Stores and restores some of the commits that are taken, and compares.

    Args:
        restored_of: one of so many, drawn by the seed; 1: all.
    """

    def __init__(
        self, taking: Taking, seed: int, monkeypatch: pytest.MonkeyPatch, restored_of: int = RESTORED_OF
    ) -> None:
        self._taking, self._choose, self._restored_of = taking, random.Random(seed), restored_of
        self._monkeypatch = monkeypatch
        self._stands: dict[int, Stands] = {}
        self._parent: CommitId | None = None
        self.restored = self.on_top = 0
        note = taking.note

        def note_all(root: int) -> None:
            note(root)
            # Whose tracker was killed runs on: nothing is known then, and no commit of that moment may be kept.
            stands = {pid: look_at(pid) for pid in procfs.tree_of(root)}
            self._stands = {pid: one for pid, one in stands.items() if one is not None}

        monkeypatch.setattr(taking, "note", note_all)
        monkeypatch.setattr(taking, "done", self._done)
        monkeypatch.setattr(builder, "stop_before_it_runs", _stop_all)
        monkeypatch.setattr(restoring, "start_rewinder", self._compare)

    def _done(self, taken: Capture) -> None:
        if self._choose.randrange(self._restored_of):
            taken.discard()
            return
        self.on_top += self._taking.micro.reason is None
        store = self._taking.store
        self._parent = taken.store(store, [] if self._parent is None else [self._parent]).id
        before = self.restored
        branch = restore(
            self._taking.settings, store, self._parent, RestoreRequest(clock=Clock.NOW, rewinds=True)
        )
        branch.stop()
        assert self.restored == before + 1, "it was not compared"

    def _compare(self, directory: Path, _tools: object, root: int, *_words: object) -> None:
        found = {procfs.innermost_pid(pid): pid for pid in procfs.tree_of(root)}
        assert found.keys() == self._stands.keys()
        for inside, pid in found.items():
            assert inside is not None
            self._compare_one(inside, pid, directory / "images")
        self.restored += 1

    def _compare_one(self, inside: int, pid: int, images: Path) -> None:
        eventually(lambda: all(_stands_still(pid, one) for one in procfs.threads_of(pid)), "it stands still")
        then, now = self._stands[inside], look_at(pid)
        assert now is not None
        assert not differences_of(memory_of(pid), self._taking.frozen[inside])
        assert now.shared == then.shared
        assert now.files == then.files
        assert now.threads.keys() == then.threads.keys()
        for thread, (instruction, stack) in now.threads.items():
            before = then.threads[thread]
            assert stack == before[1]
            assert instruction in (before[0], before[0] - IN_A_CALL)
        for thread in procfs.threads_of(pid):
            number = procfs.innermost_pid(pid, thread)
            saved = read_first(images / f"core-{number}.img", pb.CoreEntry).thread_info.gpregs
            _compare_registers(thread, saved)


def differences_of(restored: Pages, frozen: Pages) -> list[str]:
    """Both ways: a page that is there now only would have to be empty."""
    extra = [hex(at) for at, page in restored.items() if at not in frozen and page != EMPTY]
    return extra + differences({at: page for at, page in restored.items() if at in frozen}, frozen)


def _stop_all(root: int) -> None:
    """As ``stop_before_it_runs``, of a tree, too."""
    for pid in procfs.tree_of(root):
        handle = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        signal.pidfd_send_signal(handle, signal.SIGSTOP)
        os.close(handle)


def _stands_still(pid: int, thread: int) -> bool:
    return Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def _compare_registers(thread: int, saved: Any) -> None:
    ptrace.seize(thread)
    ptrace.interrupt(thread)
    os.waitpid(thread, 0x40000000)  # __WALL
    try:
        held = ptrace.registers(thread)
        for name in REGISTERS:
            assert getattr(held, OF_THE_KERNEL.get(name, name)) == getattr(saved, name), name
    finally:
        ptrace.detach(thread)


def take_all(
    taking: Taking, process: Told, words: tuple[str, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Take ``COMMITS`` on top; a word is done before each, where there are any."""
    choose, on_top, tries = random.Random(seed), 0, 0
    restores = Restores(taking, seed, monkeypatch)
    try:
        taking.base(process.pid)
        while on_top < COMMITS and tries < COMMITS * TRIES_EACH:
            tries += 1
            taking.micro._refusals = 0
            if words:
                process.ask(choose.choice(words))
            on_top += taking.commit(process.pid)
            assert any(taking.frozen.values()), "nothing was compared"
        assert process.process.poll() is None
    finally:
        process.end()
    print(f"commits {tries}, on top {on_top}; restored {restores.restored}, on top {restores.on_top}")
    assert on_top == COMMITS, taking.reasons[-3:]


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taking]:
    found = Taking(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@pytest.fixture
def taking_trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TakingTrees]:
    found = TakingTrees(tmp_path / "home", monkeypatch)
    yield found
    found.close()


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_service_of_asyncio(taking: Taking, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    take_all(taking, Told(sys.executable, PROGRAMS / "micro_asyncio.py", str(seed)), (), seed, monkeypatch)


@pytest.mark.parametrize("seed", range(LIVES))
def test_objects_of_python(
    taking: Taking, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(sys.executable, PROGRAMS / "micro_traps.py", tmp_path / "written")
    take_all(taking, told, OBJECTS, seed, monkeypatch)


@pytest.mark.parametrize("seed", range(LIVES))
def test_processes_that_share_memory(
    taking_trees: TakingTrees, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told(sys.executable, PROGRAMS / "micro_tree.py", tmp_path / "log")
    take_all(taking_trees, told, ("count",), seed, monkeypatch)

"""Branches from one template: just before they run, their memory is what CRIU itself would have brought back, byte for byte."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from relive.checkpoint import host_files
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.criu_template import CriuTemplate
from relive.containers.restore.restoring import restore
from relive.errors import ReliveError
from relive.model.commit import CommitId
from relive.sandbox import builder, cgroups
from relive.sandbox.branch import Branch, list_branches
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store
from support.waiting import eventually

from .harness import Commit, Relive

# Two processes with much in common and some of their own; mappings with holes, of each protection, without a reserve, of files.
SERVICE = """
import ctypes, mmap, os, tempfile, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def mapped(size, protection, flags=0x22, file=-1):
    address = libc.mmap(None, ctypes.c_size_t(size), 3, flags, file, ctypes.c_long(0))
    for page in range(0, size, 4096 * 7):
        ctypes.memmove(address + page, os.urandom(4096), 4096)
    libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), protection)
    return address
for protection in (0, 1, 3, 5):
    mapped(1 << 20, protection)
mapped(1 << 22, 3, 0x4022)
file = tempfile.TemporaryFile()
file.write(os.urandom(1 << 16))
file.flush()
mapped(1 << 16, 3, 0x2, file.fileno())
threading.Thread(target=time.sleep, args=(1e6,)).start()
if os.fork() == 0:
    given_back = mapped(1 << 20, 3)
    libc.madvise(ctypes.c_void_p(given_back + 4096 * 7), ctypes.c_size_t(4096 * 70), 4)
    own = os.urandom(1 << 20)
    print("ready", given_back, flush=True)
while True: time.sleep(1e6)
"""
# Changes pages of private mappings of two files that it did not make; the second is open for writing, too.
MAPS = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
for path, mode in zip(sys.argv[1:], (os.O_RDONLY, os.O_RDWR)):
    address = libc.mmap(None, ctypes.c_size_t(16 << 12), 3, 2, os.open(path, mode), ctypes.c_long(0))
    for page in range(0, 16, 2):
        ctypes.memset(address + page * 4096, page + 1, 4096)
print("ready", flush=True)
while True: time.sleep(1e6)
"""
_NOT_THE_COMMITS = ("[vvar", "[vdso]", "[vsyscall]", "/run/relive/rings/")


@pytest.fixture
def committed(relive: Relive) -> Iterator[Commit]:
    # Without it the kernel writes into each thread's memory on which processor that is (rseq(2)).
    capsule = relive.run("env", "GLIBC_TUNABLES=glibc.pthread.rseq=0", sys.executable, "-c", SERVICE)
    eventually(lambda: "ready" in relive.output(capsule), "its first line")
    yield relive.commit(capsule)
    for branch in list_branches(relive.settings):
        branch.stop()


def memory_of(pid: str) -> dict[str, str]:
    """Each mapping of its maps without device and inode, with a hash of what is there.

    Parts of a file that follow each other are one: whether they are one for the kernel depends on who opened the file.
    """
    spans: list[list[Any]] = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, rights, offset, _, _, *name = line.split(None, 5)
        if name and name[0].startswith(_NOT_THE_COMMITS):
            continue
        start, end = (int(text, 16) for text in span.split("-"))
        inside = int(offset, 16)
        if spans and name and spans[-1][1:] == [start, rights, inside - start, name]:
            spans[-1][1] = end
        else:
            spans.append([start, end, rights, inside - start, name])
    found = {}
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for start, end, *facts in spans:
            memory.seek(start)
            found[f"{start:x}-{end:x} {facts}"] = hashlib.sha256(memory.read(end - start)).hexdigest()
    return found


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, dict[str, str]]]:
    """What the memory of each branch is, by its processes, just before it runs."""
    found: list[dict[str, dict[str, str]]] = []
    really = builder.prove_confined

    def prove_confined(root: int, **given: Any) -> None:
        pids = (name for name in os.listdir("/proc") if name.isdigit() and int(name) > 1)
        names: Mapping[str, str] = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
        found.append({pid: memory_of(pid) for pid, name in names.items() if name != "criu"})
        really(root, **given)

    monkeypatch.setattr(builder, "prove_confined", prove_confined)
    return found


def smaps_of(pid: int, path: Path) -> tuple[int, dict[str, int]]:
    """Where this file is mapped, and what the kernel says of that in kilobytes."""
    lines = Path(f"/proc/{pid}/smaps").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.endswith(f" {path}"))
    facts = [line.split() for line in lines[at + 1 : at + 20]]
    return int(lines[at].split("-")[0], 16), {fact[0].rstrip(":"): int(fact[1]) for fact in facts}


def restored(relive: Relive, commit: Commit, template: CriuTemplate | None = None) -> Branch:
    return restore(
        relive.settings,
        Store(relive.settings.store),
        CommitId(commit.id),
        RestoreRequest(template=template),
    )


def own_memory(pid: int) -> int:
    """Bytes of private memory in no file that it shares with nobody."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    facts = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return facts["Private_Dirty"] * 1024


def test_memory_is_that_of_a_whole_restore_and_shared(
    relive: Relive,
    committed: Commit,
    looked_at: list[dict[str, dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GIVEN a tree of two processes; WHEN it is restored whole, then twice from a template; THEN all three are the same.

    What was given back to the kernel is zeros, also where the template is gone. Nobody was moved to control groups.
    """
    moved: list[str] = []
    really = cgroups._write

    def write(path: str, text: str) -> None:
        moved.extend([path] * path.endswith("/cgroup.procs"))
        really(path, text)

    monkeypatch.setattr(cgroups, "_write", write)
    whole = restored(relive, committed)
    with CriuTemplate(
        CriuTools(relive.settings.tools_path), whole.directory / "images", on_host=True
    ) as template:
        shared = [restored(relive, committed, template) for _ in range(2)]
    assert not moved
    wanted, *found = looked_at
    assert len(wanted) == 2 and found == [wanted, wanted]
    for one in (whole, *shared):
        for group in one.facts.groups:
            assert str(one.facts.root) in Path(group, "cgroup.procs").read_text().split(), group
    for one in shared:
        assert one.is_alive and one.seal().is_intact
        assert own_memory(one.facts.root) < own_memory(whole.facts.root) / 2
    assert len({os.readlink(f"/proc/{one.facts.root}/ns/net") for one in (whole, *shared)}) == 3


def test_changed_pages_of_a_file_are_shared_while_it_is_the_same_file(
    relive: Relive,
    tmp_path: Path,
    looked_at: list[dict[str, dict[str, str]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """GIVEN changed pages of a mapped file; WHEN a branch writes to one; THEN no other branch sees that.

    A file that the service can write to is another one in each branch. WHEN the host changes the first, which is not the
    service's; THEN a branch from the template is what a whole restore is now.
    """
    monkeypatch.setattr(host_files, "_SETTLED_NS", 0)
    file, written = tmp_path / "mapped", tmp_path / "written"
    for path in (file, written):
        path.write_bytes(b"from the host " * (1 << 13))
    program = [sys.executable, "-c", MAPS, str(file), str(written)]
    capsule = relive.run("env", "GLIBC_TUNABLES=glibc.pthread.rseq=0", *program)
    eventually(lambda: "ready" in relive.output(capsule), "its first line")
    commit = relive.commit(capsule)
    branches = [restored(relive, commit)]
    images = branches[0].directory / "images"
    try:
        with CriuTemplate(CriuTools(relive.settings.tools_path), images, on_host=True) as template:
            branches += [restored(relive, commit, template) for _ in range(2)]
            one, other = (branch.facts.root for branch in branches[1:])
            address, facts = smaps_of(one, file)
            assert (facts["Anonymous"], facts["Private_Dirty"]) == (32, 0)
            assert smaps_of(one, written)[1]["Private_Dirty"] == 32
            with Path(f"/proc/{one}/mem").open("r+b", buffering=0) as memory:
                memory.seek(address)
                memory.write(b"written by one")
            assert smaps_of(one, file)[1]["Private_Dirty"] == 4
            with Path(f"/proc/{other}/mem").open("rb", buffering=0) as memory:
                memory.seek(address)
                assert memory.read(14) == b"\1" * 14
            with file.open("r+b") as writing:
                writing.write(b"other bytes " * (1 << 13))
            branches += [restored(relive, commit, template), restored(relive, commit)]
            facts = smaps_of(branches[3].facts.root, file)[1]
            assert (facts["Anonymous"], facts["Private_Dirty"]) == (32, 32)
        assert looked_at[:3] == [looked_at[0]] * 3
        assert looked_at[3] == looked_at[4] != looked_at[0]
    finally:
        for branch in branches:
            branch.stop()


def test_a_template_that_is_killed_fails_the_next_branch_and_leaves_nothing(
    relive: Relive, committed: Commit
) -> None:
    whole = restored(relive, committed)
    with CriuTemplate(
        CriuTools(relive.settings.tools_path), whole.directory / "images", on_host=True
    ) as template:
        lives = restored(relive, committed, template)
        os.kill(template.pid, signal.SIGKILL)
        with pytest.raises(ReliveError, match="could not be set up"):
            restored(relive, committed, template)
    assert lives.is_alive
    assert {one.facts.id for one in list_branches(relive.settings)} == {whole.facts.id, lives.facts.id}
    assert {one.name for one in relive.settings.branches.iterdir()} == {whole.facts.id, lives.facts.id}

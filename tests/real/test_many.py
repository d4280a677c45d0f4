"""Many branches of one commit: the same memory in each, sealed for itself, and none that takes others along when it fails."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.errors import RestoreFailed
from relive.model.commit import CommitId
from relive.operations import restoring_many
from relive.operations.progress import Silent
from relive.operations.restoring_many import RestoreManyParams, restore_many
from relive.sandbox import restoring
from relive.sandbox.branch import Branch, find_branch, list_branches
from relive.store import Store
from support.waiting import eventually

from .harness import Commit, Relive

# Where its ballast lies, and then nothing that would change it.
SERVICE = """
import ctypes, os, time
ballast = ctypes.create_string_buffer(os.urandom(4 << 20), 4 << 20)
print("at", ctypes.addressof(ballast), flush=True)
while True: time.sleep(0.05)
"""
SIZE = 4 << 20
COUNT = 4


@pytest.fixture
def committed(relive: Relive) -> Iterator[tuple[Commit, int, str]]:
    """A commit of it, with the address of its ballast, and its hash in the original."""
    capsule = relive.run(sys.executable, "-c", SERVICE)
    told = eventually(lambda: relive.output(capsule).split()[1:2], "its first line")
    commit = relive.commit(capsule)
    yield commit, int(told[0]), hash_of(capsule.pid, int(told[0]))
    for branch in list_branches(relive.settings):
        branch.stop()


def hash_of(pid: int, address: int) -> str:
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    with contextlib.closing(os.fdopen(memory, "rb", buffering=0)):
        return hashlib.sha256(os.pread(memory, SIZE, address)).hexdigest()


def network_of(branch: Branch) -> str:
    return os.readlink(f"/proc/{branch.facts.root}/ns/net")


@pytest.mark.parametrize("options", [(), ("--lazy",)], ids=["whole", "lazy"])
def test_many_branches_have_the_memory_of_the_commit_and_a_seal_each(
    relive: Relive, committed: tuple[Commit, int, str], options: tuple[str, ...]
) -> None:
    commit, address, wanted = committed
    answer = relive("restore", "--count", str(COUNT), *options, commit.id)
    assert [one["number"] for one in answer["branches"]] == list(range(1, COUNT + 1)) and not answer["failed"]
    found = [find_branch(relive.settings, one["branch"]["id"]) for one in answer["branches"]]
    assert [one.facts.name for one in found] == [f"service-{number}" for number in range(1, COUNT + 1)]
    assert len({network_of(one) for one in found} | {os.readlink("/proc/self/ns/net")}) == COUNT + 1
    for one in found:
        eventually(lambda one=one: one.memory is None or one.memory.is_complete, "all memory")
        assert one.is_alive and one.seal().is_intact
        assert hash_of(one.facts.root, address) == wanted
    # Nothing that one does is another's.
    with Path(f"/proc/{found[0].facts.root}/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(b"changed")
    assert hash_of(found[0].facts.root, address) != wanted
    assert {hash_of(one.facts.root, address) for one in found[1:]} == {wanted}


def test_one_that_fails_does_not_fail_the_others(
    relive: Relive, committed: tuple[Commit, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN one restore that fails and one whose process is killed; WHEN four are asked for; THEN the other two run."""
    commit, address, wanted = committed
    really = restoring_many.bring_to_life

    def bring_to_life(*given: Any) -> Branch:
        if given[4].endswith("-1"):
            raise RestoreFailed("the first failed", cause="it was told to")
        if given[4].endswith("-3"):
            os.kill(os.getpid(), signal.SIGKILL)
        return really(*given)

    monkeypatch.setattr(restoring_many, "bring_to_life", bring_to_life)
    made = restore_many(relive.settings, RestoreManyParams(ref=commit.id, count=COUNT), Silent())
    assert [(one.number, one.branch is not None) for one in made.branches] == [
        (1, False),
        (2, True),
        (3, False),
        (4, True),
    ]
    assert made.failed == 2
    assert [one.error.message for one in made.branches if one.error] == [
        "the first failed",
        "branch 3 was not restored",
    ]
    for one in made.branches:
        if one.branch is not None:
            assert hash_of(one.branch.root, address) == wanted


def test_a_full_disk_is_told_for_each_that_it_fails(
    relive: Relive, committed: tuple[Commit, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, _, _ = committed

    def make_rings(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(restoring, "make_rings", make_rings)
    made = restore_many(relive.settings, RestoreManyParams(ref=commit.id, count=2), Silent())
    assert [one.error and one.error.code for one in made.branches] == ["disk-full"] * 2
    assert not list(relive.settings.branches.iterdir())


def test_those_that_this_host_has_no_memory_for_are_not_begun(
    relive: Relive, committed: tuple[Commit, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN memory for three branches in all; WHEN four are asked for; THEN the fourth is an error that says so."""
    commit, _, _ = committed
    really = restoring_many.free_for_branches
    memory = restoring_many.memory_of(Store(relive.settings.store).manifest(CommitId(commit.id)))
    assert memory > SIZE and really() > COUNT * memory
    monkeypatch.setattr(
        restoring_many, "free_for_branches", lambda: (3 - len(list_branches(relive.settings))) * memory
    )
    made = restore_many(relive.settings, RestoreManyParams(ref=commit.id, count=COUNT, jobs=1), Silent())
    assert [one.branch is not None for one in made.branches] == [True, True, True, False]
    error = made.branches[-1].error
    assert error is not None and error.cause is not None and "0 B left for branches" in error.cause
    assert len(list_branches(relive.settings)) == 3


def test_who_gives_up_has_none_of_them(
    relive: Relive, committed: tuple[Commit, int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, _, _ = committed
    found = []

    class Given(Silent):
        @contextlib.contextmanager
        def progress(self, _what: str, _total: int) -> Iterator[Any]:
            def done(count: int) -> None:
                found.append(count)
                if count == 2:
                    raise KeyboardInterrupt

            yield done

    with pytest.raises(KeyboardInterrupt):
        restore_many(relive.settings, RestoreManyParams(ref=commit.id, count=COUNT), Given())
    assert found == [1, 2] and not [one for one in list_branches(relive.settings) if one.is_alive]


# As ``relive``, but the third is never there.
_STUCK = """
import signal, sys
from relive.cli.app import main
from relive.operations import restoring_many
really = restoring_many.bring_to_life
def bring_to_life(*given):
    if given[4].endswith("-3"):
        print("at the third", flush=True)
        signal.pause()
    return really(*given)
restoring_many.bring_to_life = bring_to_life
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_asked_to_end_leaves_none_of_them(
    relive: Relive, committed: tuple[Commit, int, str], number: signal.Signals
) -> None:
    commit, _, _ = committed
    words = "restore", "--count", "3", "--jobs", "1", commit.id
    with subprocess.Popen(
        [sys.executable, "-c", _STUCK, *words],
        env={**os.environ, **relive.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "at the third\n"
            assert len(list_branches(relive.settings)) == 2
            process.send_signal(number)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (out, process.returncode) == ("", 130 if number == signal.SIGINT else -number)
    assert not list_branches(relive.settings)

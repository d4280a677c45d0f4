"""A branch that is put back is as one that was just restored: memory, files, threads, ports; and it is never half of each."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from checkpoint.test_micro_commits import kernel_says
from relive.checkpoint.criu import CriuTools
from relive.checkpoint.kernel_trust import KernelTrust
from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.errors import ReliveError, RestoreFailed, UsageError
from relive.kernel import procfs
from relive.model.branch import BranchFacts, Clients, Clock
from relive.operations import rolling_back
from relive.operations.progress import Silent
from relive.operations.rolling_back import RollbackParams, rollback
from relive.sandbox.branch import Branch, find_branch, list_branches
from relive.sandbox.rewinder import CannotRewind, put_back
from support.misled_kernel import misled, misplaced
from support.ports import free_port
from support.waiting import eventually

from .harness import SERVICES, Commit, Http, Refused, Relive, ask
from .harness import Branch as Restored


@dataclass(frozen=True)
class Scrambled:
    """Two commits of one life, what the service told at each, and its port."""

    relive: Relive
    port: int
    commits: tuple[Commit, Commit]
    told: tuple[dict[str, Any], dict[str, Any]]


@pytest.fixture(scope="module")
def scrambled() -> Iterator[Scrambled]:
    home, place = Path(tempfile.mkdtemp(prefix="relive-")), Path(tempfile.mkdtemp(dir="/var/tmp"))
    made, port = Relive(home, "rollback"), free_port()
    in_memory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    capsule = made.run(
        sys.executable, SERVICES / "scrambled.py", str(port), place / "kept", in_memory / "file"
    )
    first = ask(port, "/")
    one = made.commit(capsule)
    second = scramble(port)
    yield Scrambled(made, port, (one, made.commit(capsule)), (first, second))
    made.close()
    shutil.rmtree(home)
    shutil.rmtree(place)
    shutil.rmtree(in_memory)


@pytest.fixture
def relive(scrambled: Scrambled) -> Iterator[Relive]:
    yield scrambled.relive
    for one in list_branches(scrambled.relive.settings):
        one.stop()


@pytest.fixture
def branch(relive: Relive, scrambled: Scrambled) -> Restored:
    """Restored from the first commit, published."""
    return relive.restore(scrambled.commits[0], scrambled.port)


NOT_IN_PLACE = {
    "file": "a file has changed",
    "child": "children",
    "action": "?action 2",  # told by a round trip only
    "thread": "a thread has ended",
    "pipe": "out=",
    "unmapped": "a mapping is gone",
    "mapped": "a file has changed",  # in memory, whose times tell nothing
    "locked": "VmLck",
    "directory": "shares",
}
"""What the service does, and a word of why that is not put back in place."""
MISLED = {
    ("file", "f_flags", "f_mode"): "of descriptor",
    ("task_struct", "timer_slack_ns", "start_boottime"): "77777",
}
"""Members that are said to be where another is, and a word of what is found by that when both have changed."""
KNOWN_AFTER = 4
"""So many rollbacks later little is asked any more: two ask for all, and the third compares it with the kernel's objects."""


def rewinder_of(root: int) -> int:
    """The process that keeps what this one was."""
    found = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and _words_of(entry)[:1] == ["relive-rewind"]
        and str(root) in _words_of(entry)
    ]
    assert len(found) == 1
    return found[0]


def _words_of(process: Path) -> list[str]:
    try:
        first, *others = (process / "cmdline").read_bytes().decode().split("\0")
    except (OSError, ValueError):
        return []
    return [Path(first).name, *others]


def asked_for(facts: BranchFacts) -> tuple[object, ...]:
    is_lazy = facts.pager is not None
    return (facts.name, facts.commit, facts.clock, facts.clients, facts.wants_stubs, facts.speed, is_lazy)


def scramble(port: int) -> dict[str, Any]:
    with Http(port) as client:
        told: dict[str, Any] = client("POST", "/")
    return told


def test_it_is_again_what_its_commit_was(relive: Relive, scrambled: Scrambled) -> None:
    """GIVEN a branch whose memory, file, threads and descriptors changed; WHEN it is rolled back; THEN nothing is left of that."""
    options = ("--lazy", "--no-stubs", "--speed", "10", "--clients", "close")
    branch = relive.restore(scrambled.commits[0], scrambled.port, clock="now", options=options)
    before, host_port = branch.inner.facts, branch.ports[scrambled.port]
    scramble(host_port)
    assert ask(host_port, "/") not in scrambled.told
    answer = relive("rollback", branch.id[:6])
    after = branch.inner.facts
    assert (
        answer["id"] == before.id
        and [asked_for(one) for one in (after, before)]
        == [(before.name, before.commit, Clock.NOW, Clients.CLOSE, False, "10", True)] * 2
    )
    assert ask(host_port, "/") == scrambled.told[0]
    assert branch.seal().is_intact and not procfs.is_same_process(before.init, before.init_started)
    # Another commit of its life, and back to that again: it is the branch's commit now.
    assert relive("rollback", branch.id, scrambled.commits[1].id)["commit"] == scrambled.commits[1].id
    assert ask(host_port, "/") == scrambled.told[1]
    scramble(host_port)
    # One whose service has ended comes to life again.
    ended = branch.inner
    os.kill(ended.facts.root, signal.SIGKILL)
    eventually(lambda: not ended.is_alive, "its end")
    relive("rollback", branch.id)
    assert ask(host_port, "/") == scrambled.told[1]
    assert [one.facts.id for one in list_branches(relive.settings)] == [branch.id]
    assert len(list(relive.settings.branches.iterdir())) == 1


def test_it_is_put_back_in_place(relive: Relive, scrambled: Scrambled, branch: Restored) -> None:
    """Mappings, heap, threads, descriptors change at random; and all memory and registers are again as in another branch."""
    relive("rollback", branch.id)  # pays for the rewinder
    kept, host_port = branch.inner, branch.ports[scrambled.port]
    other = relive.restore(scrambled.commits[0])
    relive("rollback", other.id)
    fresh = put_back(other.inner.directory, verifies=True).digest
    later = ask(host_port, "/time")["time"]
    put_back(kept.directory)
    assert ask(host_port, "/time")["time"] < later  # the recorded clock begins anew
    for round_ in range(8):
        with Http(host_port) as client:
            for turn in range(round_ % 3):
                client("POST", f"/churn?{round_}{turn}")
        assert put_back(kept.directory, verifies=True).digest == fresh
        assert ask(host_port, "/") == scrambled.told[0]
    # The client is still there when it is put back: its connection is closed, not kept.
    with Http(host_port) as client:
        client("POST", "/churn?8")
        said = relive.say("rollback", branch.id)
    assert "put back in place" in said.stderr and "pages" in said.stderr
    assert branch.inner.facts.root == kept.facts.root and branch.output() == ""
    assert ask(host_port, "/") == scrambled.told[0]


def test_the_next_process_gets_the_same_number(
    relive: Relive, scrambled: Scrambled, branch: Restored
) -> None:
    """Whether one was made since, which is seen by the kernel's own counter where that is read, or none."""
    relive("rollback", branch.id)
    host_port = branch.ports[scrambled.port]
    first = ask(host_port, "/number")
    for _ in range(KNOWN_AFTER):
        put_back(branch.inner.directory)
        put_back(branch.inner.directory)
        assert ask(host_port, "/number") == first
    digests = {put_back(branch.inner.directory, verifies=True).digest for _ in range(2)}
    assert len(digests) == 1


def test_what_cannot_be_put_back_is_restored_anew(
    relive: Relive,
    scrambled: Scrambled,
    branch: Restored,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relive("rollback", branch.id)
    host_port = branch.ports[scrambled.port]
    for change, reason in NOT_IN_PLACE.items():
        before = branch.inner.facts.root
        for _ in range(KNOWN_AFTER):
            put_back(branch.inner.directory)
        with Http(host_port) as client:
            client("POST", f"/{change}")
        said = relive.say("rollback", branch.id).stderr
        assert "cannot be put back in place" in said and reason in said, change
        assert branch.inner.facts.root != before and ask(host_port, "/") == scrambled.told[0]
    rewind, trust = CriuTools(relive.settings.tools_path).rewind, KernelTrust(relive.settings.home)
    if kernel_says() != "ok":
        return
    # A kernel that hides a change is noticed by just that change; and the service does not stand still for ever.
    for (structure, member, other), found in MISLED.items():
        description = misplaced(structure, member, other)
        monkeypatch.setattr(CriuTools, "rewind", misled(rewind, tmp_path, description))
        with Http(host_port) as client:
            client("POST", "/file")
        assert in_child(lambda: rollback(relive.settings, RollbackParams(branch=branch.id), Silent())) == 0
        for _ in range(2):
            put_back(branch.inner.directory)
        with Http(host_port) as client:
            client("POST", "/flags")
        Path(f"/proc/{branch.inner.facts.root}/timerslack_ns").write_text("77777")
        with pytest.raises(CannotRewind, match="objects do not tell") as refused:
            put_back(branch.inner.directory)
        assert found in str(refused.value)
        assert trust.lost() is not None and ask(host_port, "/") == scrambled.told[0]
        suspects = SuspectCaptures(relive.settings.home)
        assert suspects.path.read_text().startswith("kernel "), "micro-commits believed it, too"
        suspects.path.unlink()
        trust.path.unlink()


def test_a_rewinder_killed_at_any_moment_leaves_no_half_state(
    relive: Relive, scrambled: Scrambled, branch: Restored
) -> None:
    """The service runs on as it was, or is put back, or has ended with the rewinder; then it comes to life anew."""
    relive("rollback", branch.id)
    host_port = branch.ports[scrambled.port]
    for number in range(3):
        with Http(host_port) as client:
            changed = client("POST", "/pages")
        rewinder, directory = rewinder_of(branch.inner.facts.root), branch.inner.directory
        killer = threading.Timer(number * 0.001, os.kill, (rewinder, signal.SIGKILL))
        killer.start()
        with contextlib.suppress(CannotRewind):
            put_back(directory)
        killer.join()
        with contextlib.suppress(OSError, http.client.HTTPException), Http(host_port) as client:
            assert client("GET", "/") in (changed, scrambled.told[0])
        relive("rollback", branch.id)
        assert ask(host_port, "/") == scrambled.told[0]


def test_what_it_cannot_become_is_refused(relive: Relive, scrambled: Scrambled, branch: Restored) -> None:
    other = relive.run(sys.executable, "-c", "import time; time.sleep(600)", name="other")
    with pytest.raises(Refused, match="another life") as refused:
        relive("rollback", branch.id, relive.commit(other).id)
    assert refused.value.code == "usage"
    assert ask(branch.ports[scrambled.port], "/") == scrambled.told[0]


def test_when_it_fails_the_branch_goes_on(
    relive: Relive, scrambled: Scrambled, branch: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_port = branch.ports[scrambled.port]
    changed = scramble(host_port)
    params = RollbackParams(branch=branch.id)
    really = rolling_back.publish

    def fails(*_: object, **__: object) -> NoReturn:
        raise RestoreFailed("it did not come to life", cause="it was told to")

    def is_taken(wanted: Branch, host: str, port: int, inner: int) -> None:
        if wanted.facts.id != branch.id:
            with socket.create_server((host, port)):
                really(wanted, host, port, inner)
        really(wanted, host, port, inner)

    for name, replaced, error in (("bring_to_life", fails, RestoreFailed), ("publish", is_taken, UsageError)):
        with monkeypatch.context() as patched:
            patched.setattr(rolling_back, name, replaced)
            assert in_child(lambda: rollback(relive.settings, params, Silent())) == error.exit_status
        assert ask(host_port, "/") == changed
        assert [one.facts.id for one in list_branches(relive.settings)] == [branch.id]


@pytest.mark.parametrize(
    ("killed_at", "is_left"), [("publish", True), ("stop", True), ("outlive_caller", False)]
)
def test_killed_in_the_middle_there_is_the_one_or_none(
    relive: Relive, branch: Restored, monkeypatch: pytest.MonkeyPatch, killed_at: str, is_left: bool
) -> None:
    """GIVEN that a rollback is killed; THEN the branch runs on as it was, or none does."""
    before = branch.inner
    where = rolling_back if killed_at == "publish" else Branch
    monkeypatch.setattr(where, killed_at, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    killed = in_child(lambda: rollback(relive.settings, RollbackParams(branch=branch.id), Silent()))
    monkeypatch.undo()
    assert killed == -signal.SIGKILL
    eventually(lambda: _alive(relive) == [before.facts.id] * is_left, "the end of what was coming to life")
    assert before.is_alive == is_left
    if is_left:
        relive("rollback", branch.id)
        assert find_branch(relive.settings, branch.id).is_alive


def _alive(relive: Relive) -> list[str]:
    return [one.facts.id for one in list_branches(relive.settings) if one.is_alive]


def in_child(work: Callable[[], object]) -> int:
    """Exit status of a process that does this, as subprocess has it; that of the error's where it is refused."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            work()
            status = 0
        except ReliveError as error:
            status = error.exit_status
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

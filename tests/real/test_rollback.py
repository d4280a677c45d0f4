"""A branch that is put back is as one that was just restored: memory, files, threads, ports; and it is never half of each."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from relive.errors import ReliveError, RestoreFailed, UsageError
from relive.kernel import procfs
from relive.model.branch import BranchFacts, Clients, Clock
from relive.operations import rolling_back
from relive.operations.progress import Silent
from relive.operations.rolling_back import RollbackWish, rollback
from relive.sandbox.branch import Branch, find_branch, list_branches
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
    capsule = made.run(sys.executable, SERVICES / "scrambled.py", str(port), place / "kept")
    first = ask(port, "/")
    one = made.commit(capsule)
    second = scramble(port)
    yield Scrambled(made, port, (one, made.commit(capsule)), (first, second))
    made.close()
    shutil.rmtree(home)
    shutil.rmtree(place)


@pytest.fixture
def relive(scrambled: Scrambled) -> Iterator[Relive]:
    yield scrambled.relive
    for one in list_branches(scrambled.relive.settings):
        one.stop()


@pytest.fixture
def branch(relive: Relive, scrambled: Scrambled) -> Restored:
    """Restored from the first commit, published."""
    return relive.restore(scrambled.commits[0], scrambled.port)


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
    wish = RollbackWish(branch=branch.id)
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
            assert in_child(lambda: rollback(relive.settings, wish, Silent())) == error.exit_status
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
    killed = in_child(lambda: rollback(relive.settings, RollbackWish(branch=branch.id), Silent()))
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

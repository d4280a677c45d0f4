"""Ends a push or a pull at some of the changes that it makes, and at random moments; then looks at what is left and does it again.

Run as ``python -m remotes.death_driver push|pull DIRECTORY SEED``. Prints the number of deaths; ends with 1 and the words of the
first broken promise. All that uses a remote runs in forked children: obstore's threads would not survive a fork.
"""

from __future__ import annotations

import itertools
import os
import random
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from relive.errors import RefUnknown, RemoteUnknown
from relive.model.commit import CommitId
from relive.remotes import pull, push, remote_layout
from relive.remotes.remote import Remote, open_remote
from relive.store import Store
from store.builders import OLD, commit, contents
from store.crash_driver import KILLED, die_at

from .conftest import HERE, Host, silent

RANDOM_DEATHS = 5
RANDOM_TRIES = 40  # to come to so many
STRIDE = 9  # changes that are passed over at most between two deaths
LONGEST = 0.04  # [s] about what a push or a pull takes here


def in_child(work: Callable[[], None]) -> int:
    """Run it in a process of its own; returns how that ended."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class World:
    """A sender with a commit, a remote, and a receiver that trusts the sender; all below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def host(self, name: str) -> Host:
        host = object.__new__(Host)
        host.home = self.directory / name
        host.store = Store(host.home / "store")
        return host

    def remote(self) -> Remote:
        return open_remote(f"file://{self.directory}/remote", make=True)

    def push(self, commit_id: CommitId) -> None:
        store = self.host("sender").store
        push.push(store, self.remote(), commit_id, tag=None, force=False, show=silent)

    def pull(self, commit_id: CommitId) -> None:
        pull.pull(self.host("receiver").store, self.remote(), commit_id, HERE, force=False, show=silent)

    def check_remote(self, commit_id: CommitId) -> None:
        """What the remote shows can be fetched whole."""
        try:
            self.pull(commit_id)
        except (RefUnknown, RemoteUnknown):
            return
        self.check_receiver(commit_id)

    def check_receiver(self, commit_id: CommitId) -> None:
        """What the receiver lists can be given back."""
        sent, got = self.host("sender").store, self.host("receiver").store
        for line in got.log():
            assert contents(got, line.id) == contents(sent, commit_id)

    def check_end(self, commit_id: CommitId) -> None:
        """After it was done again, the receiver has it."""
        self.pull(commit_id)
        got = self.host("receiver").store
        assert [line.id for line in got.log()] == [commit_id]
        self.check_receiver(commit_id)


def prepare(directory: Path, kind: str) -> CommitId:
    sender, receiver = Host(directory / "sender"), Host(directory / "receiver")
    receiver.trust(sender)
    pages = random.Random(1).randbytes(3 << 16)
    one = commit(sender.store, files={"a": b"1", "b": b"2"}, pages=pages, version=OLD)
    if kind == "pull":
        assert in_child(lambda: World(directory).push(one.id)) == 0
    return one.id


def deadly_remote() -> None:
    """Count what is done at the remote among the changes, before and after each."""
    for name in ("write", "write_new"):
        plain = getattr(Remote, name)

        def counted(*args: object, plain: Callable[..., object] = plain) -> object:
            os.utime(".")  # one of the calls that die_at counts
            answer = plain(*args)
            os.utime(".")
            return answer

        setattr(Remote, name, counted)


def die_by_count(work: Callable[[], None], number: int) -> int:
    def mortal() -> None:
        die_at(number)
        deadly_remote()
        work()

    return in_child(mortal)


def die_by_time(work: Callable[[], None], seconds: float) -> int:
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    ended = os.pidfd_open(child)
    select.select([ended], [], [], seconds)
    os.kill(child, signal.SIGKILL)  # not reaped yet, so it is still that process
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check(world: World, kind: str, commit_id: CommitId) -> None:
    looks = world.check_remote if kind == "push" else world.check_receiver
    assert in_child(lambda: looks(commit_id)) == 0, "what is left is not what it seems"
    if kind == "push":
        assert in_child(lambda: world.push(commit_id)) == 0, "it cannot be done again"
    assert in_child(lambda: world.check_end(commit_id)) == 0, "it is not there after it was done again"
    shutil.rmtree(world.directory)


def main(kind: str, directory: Path, seed: int) -> int:
    remote_layout.PIECE_SIZE = pull.PIECE_SIZE = 1 << 16
    template = directory / "template"
    template.mkdir()
    os.chdir(directory)
    commit_id = prepare(template, kind)
    count, dice = 0, random.Random(seed)

    def world() -> World:
        target = directory / f"world-{next(numbers)}"
        shutil.copytree(template, target, symlinks=True)
        return World(target)

    numbers = itertools.count()
    number, status = 0, KILLED
    while status == KILLED:
        number += dice.randint(1, STRIDE)
        here = world()
        work = here.push if kind == "push" else here.pull
        status = die_by_count(lambda work=work: work(commit_id), number)
        assert status in (0, KILLED), f"it failed without a death (number {number})"
        check(here, kind, commit_id)
        count += status == KILLED
    hits, longest = 0, LONGEST
    for _ in range(RANDOM_TRIES):
        here = world()
        work = here.push if kind == "push" else here.pull
        status = die_by_time(lambda work=work: work(commit_id), dice.uniform(0, longest))
        assert status in (0, -signal.SIGKILL)
        check(here, kind, commit_id)
        hits += status != 0
        if hits == RANDOM_DEATHS:
            break
        if status == 0:  # it was over before; how long it takes is the machine's
            longest *= 0.8
    assert hits == RANDOM_DEATHS, "the random deaths missed the work"
    count += hits
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))

"""Ends a process at every single change it makes to the disk, and looks at what is left.

Run as ``python -m store.crash_driver SCENARIO DIRECTORY``. For N = 1, 2, ... a forked child carries the scenario out on a
copy of the same store and dies (``os._exit``) in place of its N-th call of one of ``CHANGES``, until it comes through.
Prints the number of deaths; ends with 1 and the words of the first broken promise.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from relive.errors import ReliveError
from relive.incidents.incidents import Incidents
from relive.model.commit import CommitId
from relive.store import Store, WrittenCommit, sweep
from relive.store.pages import ingest
from store.builders import beyond, commit, contents, is_whole
from store.series import Pooling, Service, read_in, take

CHANGES = (
    "write",
    "pwrite",
    "posix_fallocate",
    "fsync",
    "rename",
    "replace",
    "link",
    "unlink",
    "mkdir",
    "rmdir",
    "chmod",
    "fchmod",
    "utime",
    "mknod",
)
KILLED = 77


def die_at(number: int) -> None:
    """Wrap the functions of ``os``, in this process, for good."""
    calls = 0

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os._exit(KILLED)
            return function(*args, **options)

        return wrapped

    for name in CHANGES:
        setattr(os, name, wrap(getattr(os, name)))


class Scenario:
    """What is there before, what is done, and what must hold afterwards."""

    def prepare(self, home: Path) -> None:
        """Two commits that share content, one of them tagged."""
        store = Store(home / "store")
        self.old = commit(store, capture="old", files={"f": b"shared", "g": b"own of old"}, wall_ns=1).id
        self.other = commit(
            store, capture="other", files={"f": b"shared", "h": b"own of other"}, wall_ns=2
        ).id
        store.tag("t", self.old)
        store.close()

    def act(self, home: Path) -> None:
        """In the child; what it returns from has been reported as durable."""
        raise NotImplementedError

    def check(self, home: Path, store: Store, done: bool) -> None:
        """In the parent, with the store opened anew."""
        raise NotImplementedError


class Add(Scenario):
    """ingest_file, ingest_images and add."""

    def act(self, home: Path) -> None:
        commit(Store(home / "store"), **self.facts())

    @staticmethod
    def facts() -> dict[str, Any]:
        return {
            "capture": "new",
            "files": {"f": b"shared", "d/n": b"own of new"},
            "pages": b"n" * 4096,
            "wall_ns": 3,
        }

    def check(self, home: Path, store: Store, done: bool) -> None:
        listed = {line.id for line in store.log()}
        assert {self.old, self.other} <= listed, "an older commit is gone"
        assert len(listed) == 3 or not done, "it was called durable and is not there"
        again = commit(store, **self.facts()).id
        assert is_whole(store, again), "it cannot be taken in again"


class Delete(Scenario):
    """Dropping a commit that shares content with another."""

    def act(self, home: Path) -> None:
        Store(home / "store").delete(self.other)

    def check(self, home: Path, store: Store, done: bool) -> None:
        listed = {line.id for line in store.log()}
        assert self.old in listed, "the wrong commit is gone"
        assert not (done and self.other in listed), "it was called gone and is there"
        store.delete(self.other)
        store.delete(self.old)
        for kind in ("objects/*", "packs", "placements"):
            assert not list((home / "store").glob(f"{kind}/*")), f"{kind} are left that nobody uses"


class Thin(Delete):
    """Dropping all but the tagged and the newest."""

    def act(self, home: Path) -> None:
        Store(home / "store").thin("pay", beyond(0))


class Series(Scenario):
    """A child commit, whose pages lie in its own pack and its parent's; carried out as ``Key`` and ``Pooled``."""

    key_every = 32

    def prepare(self, home: Path) -> None:
        ingest.KEY_EVERY = self.key_every
        sweep._REPACK_FROM = 1
        self.service = Service(pages=30)
        store = Store(home / "store")
        self.old = take(store, self.service, None).id
        self.service.live()
        self.other = take(store, self.service, self.old).id
        for pages in self.service._memory.values():
            pages[:25] += 1_000_003  # so that most of the first pack is of use to the first commit only
        self.service.live()
        store.close()

    def act(self, home: Path) -> None:
        take(Store(home / "store"), self.service, self.other)

    def check(self, home: Path, store: Store, done: bool) -> None:
        listed = {line.id for line in store.log()}
        assert {self.old, self.other} <= listed, "an older commit is gone"
        assert len(listed) == 3 or not done, "it was called durable and is not there"
        again = take(store, self.service, self.other).id
        assert contents(store, again)[0] == self.service.images(), "it cannot be taken in again"
        for commit_id in (self.old, self.other, again):
            store.delete(commit_id)
        self.check_empty(home)

    @staticmethod
    def check_empty(home: Path) -> None:
        for kind in ("packs", "placements", "manifests"):
            assert not list((home / "store" / kind).iterdir()), f"{kind} are left that nobody needs"


class Key(Series):
    """A key commit, which keeps anew what lies in packs of which it uses little."""

    key_every = 2


class Pooled(Series):
    """Two commits whose pages lie in a pool, the first on top of one that is read back from packs, the second on top of that."""

    def act(self, home: Path) -> None:
        store = Store(home / "store")
        pooling = Pooling(store)
        first = take(store, self.service, self.other, pooling=pooling).id
        self.service.live()
        take(store, self.service, first, pooling=pooling)

    def check(self, home: Path, store: Store, done: bool) -> None:
        listed = {line.id for line in store.log()}
        assert {self.old, self.other} <= listed, "an older commit is gone"
        assert len(listed) == 4 or not done, "one was called durable and is not there"
        again = take(store, self.service, self.other).id
        assert contents(store, again)[0] == self.service.images(), "it cannot be taken in again"
        for commit_id in {line.id for line in store.log()}:
            store.delete(commit_id)
        self.check_empty(home)


class Group(Series):
    """Three commits whose pages lie in a pool, taken in together on top of one that is read back from packs; a key commit among
    them.
    """

    key_every = 4
    count = 3

    def act(self, home: Path) -> None:
        store = Store(home / "store")
        pooling, parent = Pooling(store), self.other
        written: list[WrittenCommit] = []
        with store.taking_in(self.other):
            for _ in range(self.count):
                if written:
                    store.go_on_from(written[-1])
                    self.service.live()
                written.append(store.write(*read_in(store, self.service, parent, pooling=pooling)))
                parent = written[-1].id
            store.publish(written)

    def check(self, home: Path, store: Store, done: bool) -> None:
        listed = {line.id for line in store.log()}
        assert {self.old, self.other} <= listed, "an older commit is gone"
        fresh = [line for line in reversed(store.log()) if line.id not in (self.old, self.other)]
        assert len(fresh) == self.count or not done, "one was called durable and is not there"
        parents = [self.other, *(line.id for line in fresh)]
        assert [line.parent for line in fresh] == parents[: len(fresh)], (
            "one is there without those before it"
        )
        again = take(store, self.service, self.other).id
        assert contents(store, again)[0] == self.service.images(), "it cannot be taken in again"
        for commit_id in {line.id for line in store.log()}:
            store.delete(commit_id)
        self.check_empty(home)


class DropParent(Series):
    """Dropping a commit whose pack its child needs, a little of it: what is needed moves to a new pack."""

    def prepare(self, home: Path) -> None:
        super().prepare(home)
        store = Store(home / "store")
        self.other = take(store, self.service, self.other).id
        (self.dead,) = store.internals.placements.read(self.old).needed()
        assert self.dead in store.internals.placements.read(self.other).needed()
        store.close()

    def act(self, home: Path) -> None:
        store = Store(home / "store")
        for line in reversed(store.log()):
            if line.id != self.other:
                store.delete(line.id)

    def check(self, home: Path, store: Store, done: bool) -> None:
        assert not done or [line.id for line in store.log()] == [self.other], (
            "one was called gone and is there"
        )
        self.act(home)
        store.thin("nobody", beyond(0))  # what a death left undone comes with the next drop
        assert contents(store, self.other)[0] == self.service.images(), "its child is not whole"
        assert self.dead not in store.internals.packs.names(), "the dead pack was not repacked"
        assert store.internals.packs.names() == store.internals.placements.read(self.other).needed()
        store.delete(self.other)
        self.check_empty(home)


class Tag(Scenario):
    """Moving a tag."""

    def act(self, home: Path) -> None:
        Store(home / "store").tag("t", self.other, force=True)

    def check(self, home: Path, store: Store, done: bool) -> None:
        assert store.tags() in ({"t": self.old}, {"t": self.other}), "the tag names neither"
        assert store.resolve("t") == self.other or not done, "the tag was called moved and is not"


class Untag(Scenario):
    """Removing a tag."""

    def act(self, home: Path) -> None:
        Store(home / "store").untag("t")

    def check(self, home: Path, store: Store, done: bool) -> None:
        assert store.tags() in ({"t": self.old}, {}), "another tag"
        assert not (store.tags() and done), "the tag was called removed and is there"


class LayOut(Scenario):
    """Laying a layer out for a branch."""

    def act(self, home: Path) -> None:
        store = Store(home / "store")
        store.files.lay_out_layer(store.manifest(self.old).layers[0])

    def check(self, home: Path, store: Store, done: bool) -> None:
        tree = store.files.lay_out_layer(store.manifest(self.old).layers[0])
        assert {path.name: path.read_bytes() for path in tree.iterdir()} == {
            "f": b"shared",
            "g": b"own of old",
        }


class Begin(Scenario):
    """Making a store where there is none."""

    def prepare(self, home: Path) -> None:
        home.mkdir()

    def act(self, home: Path) -> None:
        Store(home / "store")

    def check(self, home: Path, store: Store, done: bool) -> None:
        assert is_whole(store, commit(store).id)


class AddIncident(Scenario):
    """Writing an incident down."""

    def act(self, home: Path) -> None:
        add_incident(home)

    def check(self, home: Path, store: Store, done: bool) -> None:
        found = Incidents(home / "incidents").list()
        assert len(found) == 1 or not done, "it was called durable and is not there"
        listed = Incidents(home / "incidents").page().items
        assert [one.number for one in listed] == [one.number for one in found], "the index says otherwise"
        number = add_incident(home)
        assert number not in [incident.number for incident in found], "a number is used twice"


def add_incident(home: Path) -> int:
    from incidents.test_incidents import sighting

    return (
        Incidents(home / "incidents")
        .add("pay", "L1", sighting(), before=None, at=None, log_end=None, log_tail=["a", "b"])
        .number
    )


SCENARIOS = {
    "add": Add,
    "key": Key,
    "pooled": Pooled,
    "group": Group,
    "drop-parent": DropParent,
    "delete": Delete,
    "thin": Thin,
    "tag": Tag,
    "untag": Untag,
    "lay-out": LayOut,
    "begin": Begin,
    "incident": AddIncident,
}


def deaths(scenario: Scenario, directory: Path) -> Iterator[tuple[Path, bool]]:
    """(home after the death, whether the child came through)."""
    template = directory / "template"
    scenario.prepare(template)
    number, status = 0, KILLED
    while status == KILLED:
        number += 1
        home = directory / f"death-{number}"
        shutil.copytree(template, home, symlinks=True)
        child = os.fork()
        if child == 0:
            die_at(number)
            try:
                scenario.act(home)
            except BaseException as error:
                sys.stderr.write(f"{error!r}\n")
                os._exit(1)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, KILLED), f"it failed without a death (number {number})"
        yield home, status == 0


def main(name: str, directory: Path) -> int:
    scenario = SCENARIOS[name]()
    count = 0
    for home, done in deaths(scenario, directory):
        try:
            store = Store(home / "store")
            for line in store.log():
                assert is_whole(store, CommitId(line.id)), f"{line.id} is not whole"
            listed = {line.id for line in store.log()}
            assert {path.stem for path in (home / "store/manifests").iterdir()} == listed, (
                "not all are listed"
            )
            scenario.check(home, store, done)
            store.close()
        except (AssertionError, ReliveError) as error:
            print(f"{name}, death {count + 1}: {error!r}")
            return 1
        shutil.rmtree(home)
        count += not done
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))

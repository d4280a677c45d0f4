"""Ends ``gc`` at every single change it makes to the disk, with a committer beside it, and looks at what is left.

Run as ``python -m maintenance.gc_driver DIRECTORY``. For N = 1, 2, ... on a copy of the same store one child commits a series
without a break and reports what is durable, another collects garbage and dies in place of its N-th change, until it comes
through. Prints ``DEATHS COMMITS``: how often it died, and how many commits were taken beside it; ends with 1 and the words of
the first broken promise.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from relive.errors import ReliveError
from relive.maintenance import gc
from relive.maintenance.verify import verify
from relive.model.commit import CommitId
from relive.store import Store
from store.builders import commit, contents, is_whole
from store.crash_driver import KILLED, die_at
from store.series import Service, take

gc._REPACK_FROM = 1


def prepare(home: Path) -> tuple[dict[CommitId, dict[str, bytes]], Service, CommitId]:
    """Commits of two series with a mostly dead pack, an object, a pack and a placement that nobody needs."""
    store = Store(home / "store")
    service = Service(pages=22)
    first = take(store, service, None).id
    for pages in service._memory.values():
        pages[:18] += 1_000_003
    service.live()
    second = take(store, service, first).id
    states = {second: service.images()}
    store.delete(first)
    plain = commit(store, capture="plain", files={"f": b"kept"}).id
    states[plain] = contents(store, plain)[0]
    lost = commit(store, capture="lost", name="lost", files={"f": b"lost"}, pages=os.urandom(9 * 4096)).id
    (home / "store" / "manifests" / f"{lost}.json").unlink()
    store._index.remove(lost)
    store.close()
    service.live()
    return states, service, second


def commit_on(home: Path, service: Service, parent: CommitId, reports: int, stop: int) -> None:
    """Commit until ``stop`` is closed, and once more."""
    store = Store(home / "store")
    last = False
    os.set_blocking(stop, False)
    while True:
        parent = take(store, service, parent).id
        os.write(reports, f"{parent}\n".encode())
        service.live()
        if last:
            return
        try:
            last = os.read(stop, 1) == b""
        except BlockingIOError:
            last = False


def one_death(home: Path, service: Service, parent: CommitId, number: int) -> tuple[list[CommitId], bool]:
    """(what was reported as durable, whether gc came through)."""
    reports, to_report = os.pipe()
    stop, to_stop = os.pipe()
    committer = os.fork()
    if committer == 0:
        os.close(to_stop)
        commit_on(home, service, parent, to_report, stop)
        os._exit(0)
    os.close(to_report)
    os.close(stop)
    first = os.read(reports, 65)  # it is under way
    collector = os.fork()
    if collector == 0:
        store = Store(home / "store")
        die_at(number)
        gc.collect(store, grace=0)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(collector, 0)[1])
    assert status in (0, KILLED), f"it failed without a death (number {number})"
    os.close(to_stop)
    with os.fdopen(reports, "rb") as file:
        reported = (first + file.read()).decode().split()
    ended = os.waitstatus_to_exitcode(os.waitpid(committer, 0)[1])
    assert ended == 0, f"the committer failed beside death {number}"
    return [CommitId(one) for one in reported], status == 0


def check(home: Path, states: dict[CommitId, dict[str, bytes]], reported: list[CommitId]) -> None:
    store = Store(home / "store")
    listed = {line.id for line in store.log()}
    assert set(reported) | set(states) <= listed, "a commit is gone"
    for commit_id, images in states.items():
        assert contents(store, commit_id)[0] == images, f"{commit_id} is not as it was"
    for commit_id in reported:
        assert is_whole(store, commit_id), f"{commit_id} is not whole"
    gc.collect(store, grace=0)
    left = gc.foresee(store, grace=0)
    assert (left.decision.delete, left.repacked, left.freed) == ([], [], 0), f"garbage is left: {left}"
    assert verify(store, data=True).problems == [], "something is damaged"
    store.close()


def main(directory: Path) -> int:
    states, service, parent = prepare(directory / "template")
    number, commits, done = 0, 0, False
    while not done:
        number += 1
        home = directory / f"death-{number}"
        shutil.copytree(directory / "template", home)
        try:
            reported, done = one_death(home, service, parent, number)
            check(home, states, reported)
        except (AssertionError, ReliveError) as error:
            print(f"death {number}: {error!r}")
            return 1
        commits += len(reported)
        shutil.rmtree(home)
    print(number - 1, commits)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

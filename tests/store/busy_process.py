"""A process that works on a store while others do: ``python -m store.busy_process WORK DIRECTORY NUMBER``.

It says "ready", waits for a line, works, and prints what was reported to it as durable, an id a line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from relive.errors import ObjectMissing
from relive.store import Store
from store.builders import beyond, commit, is_whole
from store.series import Service, take

ROUNDS = 25


def add(store: Store, number: int) -> None:
    """Commits that share some content with those of the other processes."""
    for turn in range(ROUNDS):
        try:
            one = commit(
                store,
                name=f"pay{number}",
                capture=f"{number}-{turn}",
                files=files(number, turn),
                wall_ns=turn,
            )
        except ObjectMissing:
            continue  # declared: the other process dropped what was shared; nothing was called durable
        print(one.id, flush=True)


def files(number: int, turn: int) -> dict[str, bytes]:
    return {"empty": b"", "turn": b"%d" % turn, "own": b"%d of %d" % (turn, number)}


def series(store: Store, number: int) -> None:
    """A service's commits, each stored against the one before."""
    service, parent = Service(seed=number, pages=40), None
    for _ in range(ROUNDS):
        parent = take(store, service, parent, name=f"pay{number}").id
        print(parent, flush=True)
        service.live()


def drop(store: Store, _number: int) -> None:
    """Of all there is every second, as long as others commit."""
    for _ in range(4 * ROUNDS):
        for line in store.log()[1::2]:
            store.delete(line.id)
        store.thin("pay0", beyond(2))


def thin(store: Store, number: int) -> None:
    """Commits of its own, of which only the newest stays, so that shared content comes and goes."""
    for turn in range(ROUNDS):
        try:
            commit(
                store,
                name=f"pay{number}",
                capture=f"{number}-{turn}",
                files=files(number, turn),
                wall_ns=turn,
            )
        except ObjectMissing:
            continue
        store.thin(f"pay{number}", beyond(1))


def read(store: Store, _number: int) -> None:
    """What a tag keeps must be there at any time."""
    for _ in range(ROUNDS):
        assert is_whole(store, store.resolve("kept"))


WORK = {"add": add, "series": series, "drop": drop, "thin": thin, "read": read}

if __name__ == "__main__":
    directory = Path(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    store = Store(directory)
    WORK[sys.argv[1]](store, int(sys.argv[3]))
    store.close()

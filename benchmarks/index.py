"""How long lists, searches and single rows take in a home with many commits and incidents.

    python benchmarks/index.py [--commits 100000] [--incidents 10000] [--home DIRECTORY] [--fill-only] [--json]

Fills ``DIRECTORY`` (made where there is none, and kept; else one in /dev/shm, removed at the end) by the functions that agents use:
``Store.add``, ``Store.tag``, ``Incidents.add``, ``Incidents.save`` and ``evidence.store_evidence``. The commits hold no memory, and
nothing is synced to the disk while it is filled (``os.fsync`` does nothing then). There are twenty services; one commit in twenty
is of a target of its own (``pid:N``); every 500th commit has a tag; half of the incidents have an error package.

Each question is asked ``--rounds`` times, with another target, word, cursor or number each time. ``while written`` asks again while
a thread enters commits and incidents.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _lab import load_average, print_json, print_table

from relive.incidents.evidence import Evidence, store_evidence
from relive.incidents.incidents import IncidentOrder, IncidentQuery, Incidents
from relive.model.commit import CommitId, Cursor, HostFacts, Manifest, TargetFacts, TargetKind, Trigger
from relive.model.failure import ErrorPackage, Frame, Link, Source, Versions, Where
from relive.model.incident import FailureKind, Occurrence, Sighting
from relive.store import CommitQuery, Store

SERVICES = [
    f"{what}-{part}"
    for what in ("orders", "payments", "mail", "search", "stock")
    for part in ("api", "worker", "cron", "web")
]
_TRIGGERS = [Trigger.TIMER] * 6 + [Trigger.REQUEST] * 12 + [Trigger.INCIDENT, Trigger.MANUAL]
_BEGAN_NS = 1_700_000_000_000_000_000
_STEP_NS = 7_000_000_000
_SERVER = "/srv/{name}/.venv/bin/python -m uvicorn {name}.app:app --host 0.0.0.0 --port 8000 --workers 2"
_ERRORS = [
    "KeyError: 'EUR'",
    "ValueError: no price",
    "TimeoutError",
    "RuntimeError: pool is empty",
    "ZeroDivisionError: division by zero",
]


def fill(home: Path, commits: int, incidents: int, seed: int = 6) -> None:
    """Add so many rows to a home."""
    chance = random.Random(seed)
    with _without_sync():
        store = Store(home / "store")
        ids = []
        for number in range(commits):
            ids.append(add_commit(store, chance, number))
            if number % 500 == 0:
                store.tag(f"release-{number}", ids[-1])
        store.close()
        kept = Incidents(home / "incidents")
        for number in range(incidents):
            add_incident(kept, home / "incidents", chance, number, ids)


def add_commit(store: Store, chance: random.Random, number: int) -> CommitId:
    """One commit without memory."""
    alone = chance.random() < 0.05
    name = f"pid:{1000 + number}" if alone else chance.choice(SERVICES)
    command = ["/usr/bin/python3", f"job-{number}.py"] if alone else _SERVER.format(name=name).split()
    manifest = Manifest(
        capture=f"{number:016x}",
        target=TargetFacts(kind=TargetKind.PROCESS if alone else TargetKind.CAPSULE, name=name,
                           life=None if alone else f"{name}-{number // 5000}", root=2, command=command, processes=[]),
        host=HostFacts(name="host", kernel="6.1", criu="4.2"),
        trigger=chance.choice(_TRIGGERS),
        taken_wall_ns=_BEGAN_NS + number * _STEP_NS,
        taken_monotonic_ns=number * _STEP_NS,
        pause_us=chance.randrange(5_000, 80_000),
        parents=[],
        cursor=None if alone else Cursor(sequence=number),
        images=[], layers=[], connections=[], listening=[],
    )  # fmt: skip
    return store.add(manifest, new_bytes=chance.randrange(100_000, 5_000_000)).id


def add_incident(
    kept: Incidents, directory: Path, chance: random.Random, number: int, ids: list[CommitId]
) -> None:
    """One incident, a third of them seen again, half of them with a package."""
    service, error = chance.choice(SERVICES), chance.choice(_ERRORS)
    wall_ns = _BEGAN_NS + number * _STEP_NS * 10
    path = f"/v1/{chance.choice(['pay', 'refund', 'quote', 'book'])}/{chance.randrange(1000)}"
    sighting = Sighting(
        kind=chance.choice(list(FailureKind)), fingerprint=f"{chance.randrange(500):016x}",
        summary=f"request {number} (POST {path}) was answered with status 500", seen_wall_ns=wall_ns, request=number,
    )  # fmt: skip
    tail = [f"line {n} of what the service wrote before it failed" for n in range(30)]
    tail += ["Traceback (most recent call last):", '  File "app.py", line 9, in pay', "    fail()", error]
    before = chance.choice(ids) if ids else None
    one = kept.add(service, f"{service}-1", sighting, before=before, at=None, log_end=10, log_tail=tail)
    if number % 2:
        store_evidence(
            directory, one.number, Evidence(_package(error, wall_ns).model_dump_json().encode(), [])
        )
    if number % 3 == 0:
        latest = Occurrence(sighting=sighting, before=before)
        kept.save(
            one.model_copy(update={"times": 2, "last_seen_wall_ns": wall_ns + _STEP_NS, "latest": latest})
        )


def _package(error: str, wall_ns: int) -> ErrorPackage:
    kind, _, text = error.partition(": ")
    source = Source(first=1, lines=["    some line of code that stands around it"] * 11)
    frames = [
        Frame(file=f"/srv/app/part{n}.py", line=7, function="pay", module=f"part{n}", own=True, source=source,
              locals={f"name{k}": "a value of some length" for k in range(8)})
        for n in range(12)
    ]  # fmt: skip
    return ErrorPackage(
        version=1, type=f"builtins.{kind}", text=text, fingerprint="0123456789abcdef", where=Where.HANDLER, wall_ns=wall_ns,
        mono_ns=1, pid=7, thread="MainThread", lane=0, chain=[Link(type=kind, text=text, frames=frames)],
        versions=Versions(python="3.11.2", packages={f"package{n}": "1.2.3" for n in range(60)}),
    )  # fmt: skip


@contextmanager
def _without_sync() -> Iterator[None]:
    real, os.fsync = os.fsync, lambda _file: None
    try:
        yield
    finally:
        os.fsync = real


Question = Callable[[int], object]


def questions(store: Store, home: Path, chance: random.Random) -> dict[str, Question]:
    """By name; each is given the number of the round."""
    kept = Incidents(home / "incidents")
    deep = _deep(lambda after: store.page(after=after, limit=1000).next, 60)
    deep_of_one = _deep(
        lambda after: store.page(CommitQuery(name=SERVICES[0]), after=after, limit=200).next, 12
    )
    deep_incidents = _deep(lambda after: kept.page(after=after, limit=200).next, 30)
    ids = [one.id for one in store.page(limit=5000).items]
    last = kept.page(limit=1).items[0].number

    def service(n: int) -> str:
        return SERVICES[n % len(SERVICES)]

    def commits(**asked: Any) -> Question:
        return lambda n: store.page(CommitQuery(**{k: v(n) if callable(v) else v for k, v in asked.items()}))

    def incidents(**asked: Any) -> Question:
        return lambda n: kept.page(IncidentQuery(**{k: v(n) if callable(v) else v for k, v in asked.items()}))

    return {
        "commits: first page": commits(),
        "commits: page deep inside": lambda n: store.page(after=deep[n % len(deep)]),
        "commits: of a target": commits(name=service),
        "commits: of a target, deep": lambda n: store.page(
            CommitQuery(name=SERVICES[0]), after=deep_of_one[n % len(deep_of_one)]
        ),
        "commits: of a target by trigger": commits(name=service, trigger=Trigger.INCIDENT),
        "commits: with a tag": commits(tagged=True),
        "commits: by the beginning of an id": commits(prefix=lambda n: ids[n % len(ids)][:2]),
        "commits: a day": commits(since_wall_ns=_BEGAN_NS, until_wall_ns=_BEGAN_NS + 86_400_000_000_000),
        "commits: search, a frequent word": commits(text="uvicorn"),
        "commits: search, one service": commits(text=lambda n: service(n)[:-1]),
        "commits: search, a rare word": commits(text=lambda _: f"job-{chance.randrange(1000)}5"),
        "commits: search, nothing": commits(text="nowhere-to-be-found"),
        "commit: show": lambda n: store.manifest(store.get(ids[n % len(ids)]).id),
        "targets": lambda _: store.targets(),
        "tags": lambda _: store.tags(),
        "store: open": lambda _: Store(home / "store").close(),
        "incidents: first page": incidents(),
        "incidents: page deep inside": lambda n: kept.page(after=deep_incidents[n % len(deep_incidents)]),
        "incidents: last seen": incidents(order=IncidentOrder.LAST_SEEN),
        "incidents: of a service": incidents(service=service),
        "incidents: of a service and kind": incidents(service=service, kind=FailureKind.HANG),
        "incidents: search, a frequent word": incidents(text="KeyError"),
        "incidents: search, a rare word": incidents(text=lambda n: f"refund/{n % 900 + 99}"),
        "incidents: search, nothing": incidents(text="nowhere-to-be-found"),
        "incidents: whole page read": lambda _: kept.read(one.number for one in kept.page().items),
        "incident: show": lambda n: kept.get(n * 37 % last + 1),
        "incidents: pinned": lambda _: kept.pinned(),
    }


def _deep(step: Callable[[str | None], str | None], times: int) -> list[str | None]:
    found: list[str | None] = [None]
    for _ in range(times):
        found.append(step(found[-1]))
        if found[-1] is None:
            break
    return found[-20:-1] or found


def measure(asked: dict[str, Question], rounds: int) -> dict[str, list[float]]:
    """Milliseconds by question."""
    times: dict[str, list[float]] = {name: [] for name in asked}
    for number in range(rounds):
        for name, question in asked.items():
            began = time.perf_counter()
            question(number)
            times[name].append((time.perf_counter() - began) * 1000)
    return times


@contextmanager
def _writer(home: Path, every: float) -> Iterator[None]:
    """Commits and incidents arrive, one of each per ``every`` seconds."""
    done = threading.Event()

    def write() -> None:
        store, kept, chance = Store(home / "store"), Incidents(home / "incidents"), random.Random()
        number = 10_000_000 + chance.randrange(1_000_000)
        while not done.wait(every):
            number += 1
            add_incident(kept, home / "incidents", chance, number, [add_commit(store, chance, number)])
        store.close()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def main() -> None:
    """Fill, ask, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--incidents", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--fill-only", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    home = options.home or Path(tempfile.mkdtemp(prefix="relive-index-", dir="/dev/shm"))
    try:
        if not (home / "store").exists():
            began = time.perf_counter()
            fill(home, options.commits, options.incidents)
            took = time.perf_counter() - began
            print(
                f"filled {home} with {options.commits} commits and {options.incidents} incidents in {took:.0f} s"
            )
        if not options.fill_only:
            _tell(home, options.rounds, as_json=options.json)
    finally:
        if options.home is None:
            shutil.rmtree(home)


def _tell(home: Path, rounds: int, *, as_json: bool) -> None:
    store = Store(home / "store")
    asked = questions(store, home, random.Random(1))
    measure(asked, 3)
    quiet = measure(asked, rounds)
    with _writer(home, every=0.5):
        busy = measure(asked, rounds)
    store.close()
    rows = [_row(name, quiet[name], busy[name]) for name in asked]
    if as_json:
        print_json({"rounds": rounds, "questions": rows})
    else:
        print_table(f"Milliseconds, {rounds} rounds; load {load_average()}", rows)


def _row(name: str, quiet: list[float], busy: list[float]) -> dict[str, Any]:
    found: dict[str, Any] = {"question": name}
    for when, times in (("", quiet), (" while written", busy)):
        found[f"median{when}"] = round(statistics.median(times), 2)
        found[f"p99{when}"] = round(statistics.quantiles(times, n=100)[98], 2)
    return found


if __name__ == "__main__":
    main()

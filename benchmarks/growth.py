"""By how much the store's directory grows with a commit of a service under steady traffic, all in, as a user would see it.

    python benchmarks/growth.py [--rounds 60] [--every 1s] [--service NAME]... [--json]

Each service runs under ``relive run --every`` with its recorder, in a RELIVE_HOME of its own in which no commit is thinned, until
``--rounds`` commits have been taken while traffic flowed. Its traffic is the same all the while:

- ``payments``: the example with its fix (so that no failure adds commits), and the example's own clients.
- ``fastapi``: the application of ``_lab`` under uvicorn; 50 requests a second.
- ``redis``: 150,000 sessions, 2,000 of which are set anew each second (``_series``).
- ``postgresql``: pgbench of scale 5, two clients, 50 transactions a second, durable as it is set up.

``grows KB`` is what the directory has more at the end than when the traffic had begun to flow, by its commits: sizes of files, and
``on the disk KB`` in blocks. Then the middle and the largest of what single commits added, and what the bytes are for, of the
commits of the whole run but the first. ``actions`` are those of the traffic, for each commit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _lab import Lab, add_options, free_port, lab, load_average, median, print_json, print_table
from _series import Client, Series, series
from following import new_cluster, relive, wait_until

from relive.maintenance.stats import measure as measure_store

_PAYMENTS = Path(__file__).parent.parent / "examples" / "payments"
_NAME = "grows"
_NOT_STORED = {"incoming", "laid", "trees"}  # may go at any time
_WARM = 3  # [commits] under traffic before the measurement begins


@dataclass(frozen=True, slots=True)
class Case:
    """A service.

    Attributes:
        words: options of ``relive run`` and the command.
        is_ready: it answers.
        traffic: flows until it is left; gives what tells how many actions there have been.
    """

    words: list[str]
    is_ready: Callable[[], bool]
    traffic: Callable[[], contextlib.AbstractContextManager[Callable[[], int]]]


@contextlib.contextmanager
def payments(place: Lab) -> Iterator[Case]:
    """The example with its fix."""
    application, data, port, inner = place.fresh("payments"), place.fresh("data"), free_port(), free_port()
    shutil.copytree(_PAYMENTS, application, dirs_exist_ok=True)
    with (_PAYMENTS / "fix.patch").open("rb") as patch:
        subprocess.run(["patch", "-s", "-p3"], cwd=application, stdin=patch, check=True)
    os.environ["PAYMENTS_DATA"] = str(data)

    @contextlib.contextmanager
    def traffic() -> Iterator[Callable[[], int]]:
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, str(application / "traffic.py"), "--url", url, "--seed", "1"]
        command += ["--max-seconds", "86400", "--max-requests", "100000000"]
        clients = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            yield lambda: _count_rows(data / "payments.db", "payments")
            if clients.poll() is not None:
                raise SystemExit("error: the traffic of the payments example ended")
        finally:
            clients.kill()
            clients.wait()

    command = ["-m", "uvicorn", "app:app", "--app-dir", str(application), "--port", str(inner)]
    ports = ["--listen", f"127.0.0.1:{port}", "--upstream", str(inner)]
    yield Case([*ports, "--", sys.executable, *command], lambda: _answers(port), traffic)


def _count_rows(database: Path, table: str) -> int:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _answers(port: int) -> bool:
    done = subprocess.run(["curl", "-s", f"http://127.0.0.1:{port}/"], capture_output=True, check=False)
    return done.returncode == 0 and bool(done.stdout)


@contextlib.contextmanager
def of_series(place: Lab, name: str) -> Iterator[Case]:
    """One of ``_series`` that listens."""
    one: Series = series(name)
    program = one.program(place)
    os.environ.update(program.environment)
    inner = program.port or one.port
    assert inner is not None
    client = one.client
    assert client is not None
    port = free_port() if program.port else inner
    ports = ["--listen", f"127.0.0.1:{port}", "--upstream", str(inner)] if program.port else []

    @contextlib.contextmanager
    def traffic() -> Iterator[Callable[[], int]]:
        with _counted(client(port)) as count:
            yield count

    def is_ready() -> bool:
        if program.port:
            return _answers(port)
        return (
            subprocess.run(
                ["redis-cli", "-p", str(port), "ping"], capture_output=True, check=False
            ).returncode
            == 0
        )

    yield Case([*ports, "--", *program.command], is_ready, traffic)


@contextlib.contextmanager
def _counted(client: Client) -> Iterator[Callable[[], int]]:
    steps, step = 0, client.step

    def counting() -> None:
        nonlocal steps
        step()
        steps += 1

    client.step = counting
    with client:
        yield lambda: steps


@contextlib.contextmanager
def postgresql(_place: Lab) -> Iterator[Case]:
    """PostgreSQL, durable, under pgbench."""
    server = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)
    if server is None:
        raise SystemExit("error: PostgreSQL is not installed (`make setup` does)")
    cluster, port = new_cluster(server.parent), free_port()
    given = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": cluster}
    given |= {"shared_buffers": "64MB", "huge_pages": "off"}
    options = [word for key, value in given.items() for word in ("-c", f"{key}={value}")]
    to = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]

    def is_ready() -> bool:
        return subprocess.run([server.parent / "pg_isready", "-q", *to[:4]], check=False).returncode == 0

    def count() -> int:
        query = ["-Atc", "SELECT count(*) FROM pgbench_history"]
        done = subprocess.run(
            [server.parent / "psql", *to[:6], *query, "postgres"], capture_output=True, check=True
        )
        return int(done.stdout)

    @contextlib.contextmanager
    def traffic() -> Iterator[Callable[[], int]]:
        subprocess.run(
            [server.parent / "pgbench", "-i", "-q", "-s", "5", *to], capture_output=True, check=True
        )
        words = ["-n", "-c", "2", "--rate", "50", "-T", "86400"]
        clients = subprocess.Popen(
            [server.parent / "pgbench", *words, *to], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield count
        finally:
            clients.kill()
            clients.wait()

    try:
        command = [str(server), "-D", str(cluster / "data"), *options]
        yield Case(["--user", "postgres", "--", *command], is_ready, traffic)
    finally:
        shutil.rmtree(cluster)


_CASES: dict[str, Callable[[Lab], contextlib.AbstractContextManager[Case]]] = {
    "payments": payments,
    "fastapi": lambda place: of_series(place, "fastapi"),
    "redis": lambda place: of_series(place, "redis"),
    "postgresql": postgresql,
}


def _sizes(store: Path) -> tuple[int, int]:
    """Bytes of all files of a store but of what is on its way, and of their blocks."""
    size = blocks = 0
    for where, folders, names in os.walk(store):
        if Path(where) == store:
            folders[:] = [name for name in folders if name not in _NOT_STORED]
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found = (Path(where) / name).stat()
                size, blocks = size + found.st_size, blocks + found.st_blocks * 512
    return size, blocks


def _commits(place: Lab) -> int:
    """How many commits there are."""
    manifests = place.settings.store / "manifests"
    return len(os.listdir(manifests)) if manifests.exists() else 0


def run(place: Lab, name: str, rounds: int, every: str) -> dict[str, Any]:
    """The row of one service."""
    os.environ["RELIVE_KEEP"] = str(1_000_000)
    with _CASES[name](place) as case:
        relive(
            place, "run", "--detach", "--every", every, "--pause-share", "100", "--name", _NAME, *case.words
        )
        try:
            wait_until(case.is_ready, f"{name} is ready")
            with case.traffic() as count:
                _wait_for(place, _commits(place) + _WARM)
                first, before, acted = _commits(place), _sizes(place.settings.store), count()
                _wait_for(place, first + rounds)
                last, after, acted = _commits(place), _sizes(place.settings.store), count() - acted
        finally:
            with contextlib.suppress(SystemExit):
                relive(place, "stop", _NAME)
    taken = last - first
    row: dict[str, Any] = {"service": name, "commits": taken, "actions": acted / taken}
    row |= {"grows KB": (after[0] - before[0]) / taken / 1e3}
    row |= {"on the disk KB": (after[1] - before[1]) / taken / 1e3}
    return row | _told(place)


def _wait_for(place: Lab, commits: int) -> None:
    """Until there are so many, and the last one is whole."""
    while (there := _commits(place)) < commits:
        wait_until(lambda: _commits(place) > there, "a commit is taken")
    time.sleep(0.2)  # the last thing that a commit does is its line in the index


def _told(place: Lab) -> dict[str, Any]:
    """What `relive store stats` says of the same store: of its commits but the first, and of all its bytes."""
    store = place.store()
    try:
        found = measure_store(store)
    finally:
        store.close()
    new = [commit.new for commit in found.commits]
    kinds = {kind: size / len(new) / 1e3 for kind, size in found.dominance.items()}
    kinds["full"] -= new[0] / len(new) / 1e3  # nearly all of the first commit
    names = {"full": "full", "xor": "words", "file": "files", "index": "index", "list": "rest"}
    row = {"first MB": new[0] / 1e6, "median KB": median(new[1:]) / 1e3, "most KB": max(new[1:]) / 1e3}
    return row | {f"{names[kind]} KB": kinds[kind] for kind in names}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 60)
    parser.add_argument("--every", default="1s", help="as for relive run (default %(default)s)")
    parser.add_argument("--service", action="append", choices=_CASES, help="only this one (may be repeated)")
    options = parser.parse_args()
    rows = []
    for name in options.service or _CASES:
        with lab(options) as place:
            rows.append(run(place, name, options.rounds, options.every))
    if options.json:
        print_json({"every": options.every, "load": load_average(), "rows": rows})
        return
    print_table(f"a commit each {options.every} under traffic (load {load_average()})", rows)


if __name__ == "__main__":
    main()

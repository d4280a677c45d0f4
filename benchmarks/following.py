"""What it costs a service that Relive follows which files it changes; in turns with the same service without Relive.

    python benchmarks/following.py [--rounds 5] [--json] [--load NAME]... [--seconds 5]

Loads: SQLite at 2,000 transactions a second (WAL, and a rollback journal that is removed each time), small files,
``make -j2`` of many small sources, and PostgreSQL under pgbench (its default transactions, and SELECTs with a connection each).
``followed`` is a capsule without a commit, ``committed`` one with a commit, whose bases are kept.
For pgbench the figures are transactions a second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _lab import Lab, add_options, free_port, lab, load_average, median, print_json, print_table

_LOADS = Path(__file__).with_name("_following_loads.py")
_RELIVE = "import sys; from relive.cli import main; sys.exit(main())"
_OWN = ("sqlite wal", "sqlite delete", "small files", "make -j2")
_PGBENCH = {"pgbench": ("-c", "4"), "pgbench -C -S": ("-c", "4", "-C", "-S")}
_WAYS = ("none", "followed", "committed")
_LIMIT = 120.0  # [s]


def relive(place: Lab, *words: object) -> Any:
    """A command of Relive; its answer."""
    done = subprocess.run(
        [sys.executable, "-c", _RELIVE, str(words[0]), "--json", *(str(word) for word in words[1:])],
        env=place.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"error: relive {words}: {done.stdout} {done.stderr}")
    return json.loads(done.stdout)


def wait_until(check: Callable[[], bool], what: str) -> None:
    """Ends the benchmark if that does not come."""
    until = time.monotonic() + _LIMIT
    while not check():
        if time.monotonic() > until:
            raise SystemExit(f"error: not within {_LIMIT:g} s: {what}")
        time.sleep(0.01)


@contextlib.contextmanager
def service(
    place: Lab, way: str, command: list[str], is_ready: Callable[[], bool], user: str | None = None
) -> Iterator[None]:
    """Run it, without Relive or with it, committed or not; killed at the end."""
    if way == "none":
        words = ["runuser", "-u", user, "--", *command] if user else command
        process = subprocess.Popen(words, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(is_ready, "the service is ready")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
        return
    chosen = ["--user", user] if user else []
    relive(place, "run", "--detach", "--every", "never", "--name", "bench", *chosen, "--", *command)
    try:
        wait_until(is_ready, "the service is ready")
        if way == "committed":
            relive(place, "commit", "bench")
        yield
    finally:
        subprocess.run(
            [sys.executable, "-c", _RELIVE, "stop", "bench"],
            env=place.environment(),
            capture_output=True,
            check=False,
        )


def own(place: Lab, way: str, name: str) -> dict[str, float]:
    """One round of a load of ours."""
    directory = Path(tempfile.mkdtemp(prefix="relive-bench-", dir="/var/tmp"))
    try:
        command = [sys.executable, str(_LOADS), name, str(directory)]
        with service(place, way, command, (directory / "ready").exists):
            (directory / "go").touch()
            wait_until((directory / "result").exists, name)
            found: dict[str, float] = json.loads((directory / "result").read_bytes())
            return found
    finally:
        shutil.rmtree(directory)


def pgbench(place: Lab, way: str, name: str, seconds: int, cluster: Path, programs: Path) -> dict[str, float]:
    """One round of PostgreSQL."""
    port = free_port()
    given = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": cluster}
    given |= {"shared_buffers": "64MB", "huge_pages": "off"}
    words = [word for key, value in given.items() for word in ("-c", f"{key}={value}")]
    to = ["-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]

    def is_ready() -> bool:
        return subprocess.run([programs / "pg_isready", "-q", *to[:4]], check=False).returncode == 0

    command = [str(programs / "postgres"), "-D", str(cluster / "data"), *words]
    with service(place, way, command, is_ready, user="postgres"):
        if not (cluster / "filled").exists():
            subprocess.run(
                [programs / "pgbench", "-i", "-q", "-s", "5", *to], capture_output=True, check=True
            )
            (cluster / "filled").touch()
        ran = subprocess.run(
            [programs / "pgbench", "-n", *_PGBENCH[name], "-T", str(seconds), *to],
            capture_output=True,
            text=True,
            check=True,
        )
    match = re.search(r"tps = ([0-9.]+)", ran.stdout)
    assert match is not None
    return {"tps": float(match[1])}


def new_cluster(programs: Path) -> Path:
    """A data directory of the user postgres."""
    directory = Path(tempfile.mkdtemp(prefix="relive-bench-", dir="/var/tmp"))
    shutil.chown(directory, "postgres", "postgres")
    made = (
        "runuser",
        "-u",
        "postgres",
        "--",
        programs / "initdb",
        "--auth=trust",
        "--username=postgres",
        "-D",
    )
    subprocess.run([*made, directory / "data"], check=True, stdout=subprocess.DEVNULL, cwd="/")
    return directory


def measure(place: Lab, rounds: int, seconds: int, wanted: list[str]) -> list[dict[str, Any]]:
    """A row for each figure."""
    server = max(Path("/usr/lib/postgresql").glob("*/bin/postgres"), default=None)
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    cluster = None
    try:
        for _ in range(rounds):
            for name in wanted:
                if name in _PGBENCH and server is None:
                    continue
                for way in _WAYS:
                    if name in _OWN:
                        figures = own(place, way, name)
                    else:
                        assert server is not None
                        cluster = cluster or new_cluster(server.parent)
                        figures = pgbench(place, way, name, seconds, cluster, server.parent)
                    for figure, value in figures.items():
                        found.setdefault((name, figure), {}).setdefault(way, []).append(value)
    finally:
        if cluster is not None:
            shutil.rmtree(cluster)
    rows = []
    for (name, figure), values in found.items():
        row: dict[str, Any] = {"load": name, "figure": figure}
        row |= {way: median(values[way]) for way in _WAYS}
        row |= {f"{way} ratio": row[way] / row["none"] for way in _WAYS[1:]}
        rows.append(row)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 5)
    parser.add_argument("--load", action="append", choices=[*_OWN, *_PGBENCH], help="only this one")
    parser.add_argument("--seconds", type=int, default=5, help="of pgbench in a round")
    options = parser.parse_args()
    with lab(options) as place:
        rows = measure(place, options.rounds, options.seconds, options.load or [*_OWN, *_PGBENCH])
    result = {"rounds": options.rounds, "cpus": os.cpu_count(), "load": load_average(), "rows": rows}
    if options.json:
        print_json(result)
        return
    print_table(f"medians of {options.rounds} rounds (load {result['load']})", rows)


if __name__ == "__main__":
    main()

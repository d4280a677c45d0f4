"""What finding the beginning costs: ``benchmarks/bisection.py [--commits 1000] [--rounds 5] [--replays 100]``.

A small Python service behind the recording proxy has a micro-commit before each request (for 1,000 about a minute); one in the
middle poisons its cache, and the last one fails by it. Timed, the middle of ``--rounds``, by turns:

- raw: as many branches made and removed, one after the other, as the first question needs probes, and nothing asked of them;
- when, http, replay: ``relive bisect`` by an expression, a request, the incident: from the command to the values;
  ``one job``: the same with one probe after the other;
- replays: ``relive replay`` of the incident from the commit before it, ``--replays`` times, in a row and side by side.

CPU is that of the command and of all that it waited for, CRIU too, without the services in the branches (a sixth more).
Needs root and CRIU. Nothing stays.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from relive.config import Settings
from relive.containers.restore.restoring import restore
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
_LIMIT = 60.0  # [s]
SERVICE = """
import http.server, sys, traceback
cache = {}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, body = 200, b"noted"
        try:
            if self.path == "/poison":
                cache["rates"] = None
            elif self.path == "/":
                body = str(cache.setdefault("rates", {}).get("eur")).encode()
        except AttributeError:
            traceback.print_exc()
            status, body = 500, b"no rates"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def relive(home: Path, *words: str) -> Any:
    """A command's answer."""
    done = subprocess.run(
        [str(RELIVE), words[0], "--json", *words[1:]],
        env={**os.environ, "RELIVE_HOME": str(home)},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return json.loads(done.stdout)


def free_port() -> int:
    """One that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def get(port: int, path: str) -> int:
    """The status of an answer, as soon as there is one."""
    deadline = time.monotonic() + _LIMIT
    while True:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_LIMIT)) as connection:
            try:
                connection.request("GET", path)
                return connection.getresponse().status
            except OSError:
                if time.monotonic() > deadline:
                    raise
        time.sleep(0.02)


def history(home: Path, count: int) -> None:
    """Commits of the service, one before each request; the failure behind the last is an incident when this returns."""
    port, inner = free_port(), free_port()
    options = ["--detach", "--no-wait", "--every", "request", "--pause-share", "100", "--name", "bisected"]
    options += ["--listen", f"127.0.0.1:{port}", "--upstream", str(inner)]
    relive(home, "run", *options, "--", sys.executable, "-c", SERVICE, str(inner))
    is_poisoned = False
    with contextlib.closing(Store(home / "store")) as store:
        while (made := len(store.log("bisected"))) < count:
            if made >= count // 2 and not is_poisoned:
                is_poisoned = get(port, "/poison") == 200
            # Not one commit for each, where the one before is still at work; and none beyond the half before it is poisoned.
            for _ in range(min(20, (count if is_poisoned else count // 2) - made)):
                get(port, "/noted")
    get(port, "/")
    deadline = time.monotonic() + _LIMIT
    while not relive(home, "incidents"):
        if time.monotonic() > deadline:
            raise TimeoutError("no incident")
        time.sleep(0.1)


def branches(settings: Settings, commits: list[str]) -> None:
    """Make and remove one of each."""
    with contextlib.closing(Store(settings.store)) as store:
        for one in commits:
            restore(settings, store, store.resolve(one), RestoreRequest(is_owned=True)).stop()


def cpu_seconds() -> float:
    """Of this process and of all that it has waited for."""
    told = os.times()
    return told.user + told.system + told.children_user + told.children_system


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU."""
    began, before = time.perf_counter(), cpu_seconds()
    work()
    return time.perf_counter() - began, cpu_seconds() - before


def middles(rounds: int, works: Mapping[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Of each by turns, the middle of its costs."""
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            costs[name].append(cost(work))
    return {
        name: (statistics.median(one for one, _ in each), statistics.median(cpu for _, cpu in each))
        for name, each in costs.items()
    }


def bisected(home: Path, *words: str) -> Any:
    """What the command found: the request that poisoned the cache, and nothing else."""
    found = relive(home, "bisect", *words)
    (jump,) = found["jumps"]
    assert "/poison" in [one["target"] for one in jump["requests"]], jump
    return found


def replayed(home: Path, times: int, *words: str) -> None:
    """The failure comes back each time."""
    relive(home, "replay", "1", "--times", str(times), "--pace", "fast", *words)


def measure(home: Path, count: int, rounds: int, replays: int) -> None:
    """Make the history and print the tables."""
    settings = Settings(home=home, tools=Path(os.environ.get("RELIVE_TOOLS", "/var/lib/relive/tools")))
    took, _ = cost(lambda: history(home, count))
    with contextlib.closing(Store(settings.store)) as store:
        commits = [one.id for one in store.log("bisected")[::-1] if one.trigger == "request"]
    print(f"{len(commits)} micro-commits, made in {took:.0f} s")
    ends = ("--good", commits[0], "--bad", commits[-1])
    questions = {
        "when": (*ends, "--when", "cache.get('rates', 0) is None"),
        "http": (*ends, "--http", "/", "--expect", "status == 200"),
        "replay": ("--replay", "1"),
    }
    probes = {name: bisected(home, *words)["probes"] for name, words in questions.items()}
    works: dict[str, Callable[[], object]] = {
        "raw": lambda: branches(
            settings, commits[:: max(1, len(commits) // probes["when"])][: probes["when"]]
        )
    }
    for name, words in questions.items():
        works[name] = partial(bisected, home, *words)
        works[f"{name}, one job"] = partial(bisected, home, *words, "--jobs", "1")
    print(f"\nmedians of {rounds}, {os.cpu_count()} processors\n")
    print("| what | probes | s | CPU s |\n|---|---:|---:|---:|")
    for name, (seconds, cpu) in middles(rounds, works).items():
        print(
            f"| {name} | {probes[name.partition(',')[0] if name != 'raw' else 'when']} | {seconds:.2f} | {cpu:.2f} |"
        )
    sides = {
        "one after the other": partial(replayed, home, replays, "--jobs", "1"),
        "side by side": partial(replayed, home, replays),
    }
    print("\n| replays | | a minute | CPU s each |\n|---|---:|---:|---:|")
    for name, (seconds, cpu) in middles(rounds, sides).items():
        print(f"| {name} | {replays} | {replays * 60 / seconds:.0f} | {cpu / replays:.3f} |")
    print(f"\nload {', '.join(f'{one:.1f}' for one in os.getloadavg())}")


def main() -> None:
    """Measure in a home of its own."""
    parser = argparse.ArgumentParser(description="What finding the beginning costs.")
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replays", type=int, default=100)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="relive-bisect-"))
    os.environ |= {"RELIVE_MICRO": "1", "RELIVE_KEEP": str(2 * given.commits + 100)}
    try:
        measure(home, given.commits, given.rounds, given.replays)
    finally:
        subprocess.run(
            [str(RELIVE), "stop", "bisected"],
            env={**os.environ, "RELIVE_HOME": str(home)},
            check=False,
            stdout=subprocess.DEVNULL,
        )
        shutil.rmtree(home)


if __name__ == "__main__":
    main()

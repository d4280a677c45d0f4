"""What finding the beginning costs: ``benchmarks/bisection.py [--commits 20] [--rounds 5] [--replays 20]``.

A small Python service behind the recording proxy is committed after each request; one in the middle poisons its cache, and the last
one fails by it. Timed, the middle of ``--rounds``:

- raw: as many branches made and removed as the first question needs probes, and nothing asked of them (the raw mechanism);
- when, http, replay: ``relive bisect`` by an expression, a request, the incident, from the question to the requests and values;
- replays: the incident from the commit before it, ``--replays`` times one after the other; also by CPU time of all processes of it.

A command adds the start of Python, about 0.2 s. Needs root and CRIU. Nothing stays.
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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relive.config import Settings
from relive.containers.restore.restoring import restore
from relive.operations.bisect_result import Bisection
from relive.operations.bisect_wish import BisectWish
from relive.operations.bisecting import BISECT
from relive.operations.progress import Silent
from relive.operations.replays import REPLAY, ReplayWish
from relive.sandbox.restore_request import RestoreRequest
from relive.store import Store

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
QUIET = Silent()
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


def history(home: Path, count: int) -> list[str]:
    """Commits of the service, one after each request; the failure behind the last is an incident when this returns."""
    port, inner = free_port(), free_port()
    options = [
        "--detach",
        "--no-wait",
        "--every",
        "never",
        "--name",
        "bisected",
        "--listen",
        f"127.0.0.1:{port}",
    ]
    relive(home, "run", *options, "--upstream", str(inner), "--", sys.executable, "-c", SERVICE, str(inner))
    commits = []
    for at in range(count):
        get(port, "/poison" if at == count // 2 else "/")
        commits.append(str(relive(home, "commit", "bisected")["id"]))
    get(port, "/")
    deadline = time.monotonic() + _LIMIT
    while not relive(home, "incidents"):
        if time.monotonic() > deadline:
            raise TimeoutError("no incident")
        time.sleep(0.1)
    return commits


def middle(rounds: int, work: Callable[[], object]) -> float:
    """Seconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def branches(settings: Settings, commits: list[str]) -> None:
    """Make and remove one of each."""
    with contextlib.closing(Store(settings.store)) as store:
        for one in commits:
            restore(settings, store, store.resolve(one), RestoreRequest(is_owned=True)).stop()


def cpu_seconds() -> float:
    """Of this process and of all that it has waited for."""
    told = os.times()
    return told.user + told.system + told.children_user + told.children_system


def measure(home: Path, count: int, rounds: int, replays: int) -> None:
    """Make the history and print the tables."""
    settings = Settings(home=home, tools=Path(os.environ.get("RELIVE_TOOLS", "/var/lib/relive/tools")))
    commits = history(home, count)
    ends = {"good": commits[0], "bad": commits[-1], "further": 0}
    questions = {
        "when": BisectWish(**ends, when="cache.get('rates', 0) is None"),
        "http": BisectWish(**ends, http="/", expect="status == 200"),
        "replay": BisectWish(replay=1, further=0),
    }
    found: dict[str, Bisection] = {
        name: BISECT.run(settings, wish, QUIET) for name, wish in questions.items()
    }
    probes = found["when"].probes
    for one in found.values():
        assert [jump.after.number for jump in one.jumps] == [count // 2], one.jumps
    seconds = {"raw": middle(rounds, lambda: branches(settings, commits[:probes]))}
    for name, wish in questions.items():
        seconds[name] = middle(rounds, lambda asked=wish: BISECT.run(settings, asked, QUIET))
    load = os.getloadavg()[0]
    print(f"{count} commits, medians of {rounds}, load {load:.0f}, {os.cpu_count()} processors\n")
    print("| what | probes | ms | commits a second |\n|---|---:|---:|---:|")
    for name, took in seconds.items():
        asked = found[name].probes if name in found else probes
        print(f"| {name} | {asked} | {took * 1000:.0f} | {count / took:.0f} |")
    before, began = cpu_seconds(), time.perf_counter()
    result = REPLAY.run(settings, ReplayWish(what="1", times=replays, jobs=1), QUIET)
    took, cpu = time.perf_counter() - began, cpu_seconds() - before
    assert result.reproduced == replays, result
    print("\n| replays | a minute, one after the other | CPU s each |\n|---|---:|---:|")
    print(f"| {replays} | {replays * 60 / took:.0f} | {cpu / replays:.3f} |")


def main() -> None:
    """Measure in a home of its own."""
    parser = argparse.ArgumentParser(description="What finding the beginning costs.")
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replays", type=int, default=20)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="relive-bisect-"))
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

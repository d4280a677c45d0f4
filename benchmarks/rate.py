"""How often a service can be committed, and what that costs it: in turns with no commits at all, and without Relive.

    python benchmarks/rate.py [--every 10ms --every request] [--service fastapi] [--seconds 10] [--rounds 3] [--megabytes 14]
                              [--clients 1] [--budget 5%] [--json]

The service is Python's ``http.server``, which ends each connection, or FastAPI under uvicorn, of which each client keeps one. It is
in a capsule with micro-commits; each client asks again as soon as it is answered. With ``--every request`` the recording proxy
stands before it. What is measured begins two seconds after the clients, whose first connections lead to full commits.

*bare*: it runs without Relive; *never*: under Relive, without commits. *commits*: durable ones a second, and how many of them were
full ones; *CPU*: of the agent, and of its tracker (``relive-micro``), for each commit; *durable*: from the request for one until
it was safe; *cost*: what the last commit cost the service of its time, as the agent takes it (with ``--budget``); *bytes*: what a
commit brings the store's directory, all in; *disk*: by how much all that Relive keeps (packs, index, recordings, logs) grew a
request, in blocks of the disk. ``--clients 0``: nobody asks. ``--budget 5%``: rounds with that, too.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from _lab import Lab, add_options, lab, load_average, print_json, print_table
from burst import free_port
from following import relive, wait_until
from micro import BARE, SERVICE, get, quantiles

_WARM = 2.0  # [s] that clients ask before anything is measured
_FIRST = 8  # commits until the measurement begins: by then one is taken on top of another
_FASTAPI = """
import sys
import fastapi, uvicorn
held = bytes(range(1, 251)) * ((int(sys.argv[2]) << 20) // 250 + 1)
app, counts = fastapi.FastAPI(), {}
@app.get("/")
async def ask() -> dict[str, int]:
    counts[len(counts) % 1000] = counts.get(len(counts) % 1000, 0) + 1
    return {"requests": len(counts)}
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
"""
_SERVICES = {"http": SERVICE, "fastapi": _FASTAPI}
_FASTAPI_BARE = 44  # [MB] of FastAPI itself
_WITH = " with "  # between a clock and its budget
_TICK: int = os.sysconf("SC_CLK_TCK")


def command_of(options: argparse.Namespace, port: int) -> list[str]:
    own = _FASTAPI_BARE if options.service == "fastapi" else BARE
    words = [str(port), str(max(0, options.megabytes - own)), str(free_port()), "0", "1"]
    return [sys.executable, "-c", _SERVICES[options.service], *words]


@contextlib.contextmanager
def served(place: Lab, options: argparse.Namespace, every: str) -> Iterator[int]:
    """The service under Relive, or bare; the port at which it is asked."""
    port, inner = free_port(), free_port()
    if every == "bare":
        with contextlib.ExitStack() as stack:
            service = subprocess.Popen(command_of(options, port), stderr=subprocess.DEVNULL)
            stack.callback(service.wait)
            stack.callback(service.kill)
            yield port
        return
    proxied = ["--listen", f"127.0.0.1:{port}", "--upstream", str(inner)] if every == "request" else []
    every, _, budget = every.partition(_WITH)
    limits = ["--budget", budget] if budget else ["--pause-share", "100"]
    words = ["--detach", "--name", "bench", "--every", every, *limits, *proxied]
    relive(place, "run", *words, "--", *command_of(options, inner if proxied else port))
    try:
        yield port
    finally:
        relive(place, "stop", "bench")


def life(place: Lab) -> Path:
    return place.settings.home / "capsules" / "bench" / "current"


def said(place: Lab) -> list[dict[str, Any]]:
    """The agent's log; the line that is being written is left out."""
    lines = (life(place) / "agent.log").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]


def durable(place: Lab) -> list[dict[str, Any]]:
    return [one for one in said(place) if one.get("event") == "durable"]


def pace(place: Lab) -> dict[str, Any]:
    """How often it is committed, as the agent wrote it down last."""
    found: dict[str, Any] = json.loads((life(place) / "pace.json").read_text())
    return found


def full(place: Lab) -> int:
    return sum(one.get("event") == "committed" and not one["micro"] for one in said(place))


def seconds_of(pid: int) -> float:
    """CPU of a process; 0 for one that is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / _TICK


def spent(place: Lab) -> tuple[float, float]:
    """CPU [s] of the agent and of its tracker."""
    agent = int((life(place) / "agent.pid").read_text().split()[0])
    trackers = 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, rest = path.read_text().rpartition(")")
            if head.partition("(")[2] == "relive-micro" and int(rest.split()[1]) == agent:
                trackers += seconds_of(int(path.parent.name))
    return seconds_of(agent), trackers


def ask(port: int, is_kept: bool, since: float, until: float, took: list[float]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while (began := time.perf_counter()) < until:
        if is_kept:
            connection.request("GET", "/")
            connection.getresponse().read()
        else:
            get(port)
        if began >= since:
            took.append((time.perf_counter() - began) * 1e3)
    connection.close()


def load(port: int, options: argparse.Namespace, begins: Callable[[], None] = lambda: None) -> list[float]:
    """Milliseconds of each answer; ``begins`` is called when they begin to count."""
    took: list[float] = []
    since = time.perf_counter() + (_WARM if options.clients else 0.0)
    until = since + options.seconds
    words = (port, options.service == "fastapi", since, until, took)
    threads = [threading.Thread(target=ask, args=words) for _ in range(options.clients)]
    for thread in threads:
        thread.start()
    time.sleep(max(0.0, since - time.perf_counter()))
    begins()
    for thread in threads:
        thread.join()
    time.sleep(max(0.0, until - time.perf_counter()))
    return took


def blocks(directory: Path) -> int:
    """Bytes that it takes on the disk."""
    words = ["du", "-s", "--block-size=1", str(directory)]
    # What goes while it counts is said, and no failure.
    found = subprocess.run(words, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return int(found.stdout.split()[0])


def begin_commits(place: Lab, every: str, port: int) -> None:
    """Until one is taken on top of another."""
    if every == "request":
        for number in range(_FIRST):
            get(port)
            wait_until(lambda number=number: len(durable(place)) > number, "a request is committed")
    elif every not in ("never", "bare"):
        wait_until(lambda: len(durable(place)) >= _FIRST, "commits are taken")


def measure(place: Lab, options: argparse.Namespace, every: str) -> dict[str, Any]:
    """One round."""
    with served(place, options, every) as port:
        wait_until(lambda: _answers(port), "the service is ready")
        if every == "bare":
            took = load(port, options)
            return {"every": every, "requests_s": len(took) / options.seconds, "answer_ms": quantiles(took)}
        begin_commits(place, every, port)
        at_begin: list[tuple[int, int, tuple[float, float], float, int]] = []

        def begins() -> None:
            size = blocks(place.settings.home)
            at_begin.append((len(durable(place)), full(place), spent(place), time.perf_counter(), size))

        took = load(port, options, begins)
        ((first, whole, cpu, began, before),) = at_begin
        seconds = time.perf_counter() - began
        commits, agent = durable(place)[first:], spent(place)
        found: dict[str, Any] = {
            "every": every,
            "requests_s": len(took) / seconds,
            "answer_ms": quantiles(took),
            "commits_s": len(commits) / seconds,
            "full": full(place) - whole,
        }
        if took:
            found["disk"] = (blocks(place.settings.home) - before) / len(took)
        if commits:
            found["agent_ms"] = (agent[0] - cpu[0]) / len(commits) * 1e3
            found["tracker_ms"] = (agent[1] - cpu[1]) / len(commits) * 1e3
            found["durable_ms"] = quantiles([one["durable_us"] / 1e3 for one in commits])
            found["cost_ms"] = (pace(place).get("cost_us") or 0) / 1e3
            found["bytes"] = quantiles([float(one["bytes"]) for one in commits])
        return found


def _answers(port: int) -> bool:
    try:
        get(port)
    except (OSError, http.client.HTTPException):
        return False
    return True


def row(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over the rounds; 0 for what there is none of."""

    def middle(*names: str) -> float:
        values: list[Any] = list(found)
        for name in names:
            values = [value.get(name, {}) for value in values]
        return statistics.median([float(value) for value in values if not isinstance(value, dict)] or [0.0])

    return {
        "every": found[0]["every"],
        "commits/s": middle("commits_s"),
        "full": middle("full"),
        "agent ms": middle("agent_ms"),
        "tracker ms": middle("tracker_ms"),
        "durable ms p50": middle("durable_ms", "p50"),
        "cost ms": middle("cost_ms"),
        "bytes p50": middle("bytes", "p50"),
        "disk a request": middle("disk"),
        "requests/s": middle("requests_s"),
        "answer ms p50": middle("answer_ms", "p50"),
        "answer ms p99": middle("answer_ms", "p99"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", action="append")
    parser.add_argument("--service", choices=_SERVICES, default="http")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--megabytes", type=int, default=14)
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--budget")
    add_options(parser, rounds=3)
    options = parser.parse_args()
    os.environ["RELIVE_MICRO"] = "1"
    clocks = options.every or ["10ms"]
    limited = [f"{one}{_WITH}{options.budget}" for one in clocks] if options.budget else []
    found: dict[str, list[dict[str, Any]]] = {one: [] for one in (*clocks, *limited, "never", "bare")}
    for _ in range(options.rounds):
        for every, rounds in found.items():
            with lab(options) as place:
                rounds.append(measure(place, options, every))
    if options.json:
        print_json({"load": load_average(), "rounds": found})
        return
    clients = f"{options.clients} clients, load {load_average()} on {os.cpu_count()} processors"
    title = f"{options.service}, {options.megabytes} MB, {clients}"
    print_table(title, [row(rounds) for rounds in found.values()])


if __name__ == "__main__":
    main()

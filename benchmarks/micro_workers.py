"""How long gunicorn stands still for a commit on top of another, in pairs with full commits of the same program at the same time.

    python benchmarks/micro_workers.py [--workers 2 --workers 4] [--commits 60] [--rounds 1] [--json]

Two capsules run one WSGI application each, one with micro-commits. For each pair both answer some requests, then each is
committed, in turns. *pause*: as the commit says it, of the process that stood still the longest; *durable*: until the commit was
safely on disk. Full commits that had to be taken instead are counted, and are among the numbers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from _lab import Lab, add_options, lab, load_average, print_json, print_table
from burst import free_port
from following import relive, wait_until
from micro import get, quantiles

from relive.agent.control.client import ask_agent
from relive.model.life_paths import LifePaths

_FIRST = 8  # commits until the measurement begins
_APPLICATION = """
import json, os
counts = {}
def app(environ, start_response):
    counts[len(counts) % 1000] = counts.get(len(counts) % 1000, 0) + 1
    body = json.dumps({"requests": len(counts), "pid": os.getpid()}).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
"""


class Served:
    """One of the two capsules."""

    def __init__(self, place: Lab, name: str, workers: int, *, is_micro: bool) -> None:
        self._place, self._name, self._workers = place, name, workers
        self._port = free_port()
        (place.directory / "application.py").write_text(_APPLICATION)
        os.environ["RELIVE_MICRO"] = "1" if is_micro else "0"
        command = [sys.executable, "-m", "gunicorn", "--workers", workers, "--chdir", place.directory]
        options = ["--detach", "--name", name, "--every", "never"]
        relive(place, "run", *options, "--", *command, "--bind", f"127.0.0.1:{self._port}", "application:app")
        wait_until(self.answers, "the service is ready")
        self.paths = LifePaths(place.settings.home / "capsules" / name / "current")

    def answers(self) -> bool:
        try:
            for _ in range(2 * self._workers):
                get(self._port)
        except OSError:
            return False
        return True

    def commit(self) -> dict[str, Any]:
        self.answers()
        return ask_agent(self.paths.agent_socket, {"op": "commit"}, limit=60)

    def full(self) -> int:
        """So many commits were no micro-commits."""
        lines = self.paths.agent_log.read_text().splitlines()
        said = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return sum(one["event"] == "committed" and not one["micro"] for one in said)

    def stop(self) -> None:
        relive(self._place, "stop", self._name)


@contextlib.contextmanager
def pair(place: Lab, workers: int) -> Iterator[tuple[Served, Served]]:
    """With micro-commits, and without."""
    with contextlib.ExitStack() as stack:
        found = []
        for name, is_micro in (("micro", True), ("full", False)):
            found.append(Served(place, name, workers, is_micro=is_micro))
            stack.callback(found[-1].stop)
        yield found[0], found[1]


def measure(place: Lab, workers: int, commits: int) -> dict[str, Any]:
    """One round."""
    with pair(place, workers) as (micro, full):
        for _ in range(_FIRST):
            micro.commit()
        whole, taken = micro.full(), [(micro.commit(), full.commit()) for _ in range(commits)]
        found: dict[str, Any] = {"workers": workers, "full instead": micro.full() - whole}
    for number, name in enumerate(("micro", "full")):
        for what in ("pause_us", "durable_us"):
            told = quantiles([one[number][what] / 1e3 for one in taken])
            label = f"{name} {what.removesuffix('_us')} ms"
            found |= {f"{label} p50": told["p50"], f"{label} p99": told["p99"]}
    found["ratio p50"] = statistics.median(full["pause_us"] / micro["pause_us"] for micro, full in taken)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, action="append")
    parser.add_argument("--commits", type=int, default=60)
    add_options(parser, rounds=1)
    options = parser.parse_args()
    found = []
    for workers in options.workers or [2, 4]:
        for _ in range(options.rounds):
            with lab(options) as place:
                found.append(measure(place, workers, options.commits))
    if options.json:
        print_json({"load": load_average(), "rounds": found})
        return
    print_table(f"gunicorn, load {load_average()} on {os.cpu_count()} processors", found)


if __name__ == "__main__":
    main()

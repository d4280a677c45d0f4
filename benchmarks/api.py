"""Requests per second, and how long one takes, of lists and single things over HTTP, in a home with many commits and incidents.

    python benchmarks/index.py --home DIRECTORY --fill-only
    python benchmarks/api.py --home DIRECTORY [--seconds 5] [--clients 1 8] [--json]

A real `relive serve`, and clients in processes of their own (each with one connection, asking again as soon as it has its answer),
so that they do not wait for each other's interpreter; the server limits how often one token may ask, so each client waits out 429.
Each question is asked with another target, cursor or number each time. ``a task`` is the time from POST to the event "begun" of a
verification that has nothing to verify.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from _lab import load_average, print_json, print_table
from index import SERVICES

from relive.server.credentials import Scope, Tokens

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
Question = Callable[[int], str]


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, list[str]]]:
    """A server on the home: (address, tokens)."""
    environment = dict(os.environ, RELIVE_HOME=str(home))
    kept = Tokens(home / "server")
    tokens = [kept.create(f"bench{number}", [Scope.ADMIN], lifetime=86_400)[1] for number in range(16)]
    kept.close()
    with subprocess.Popen(
        [RELIVE, "serve", "--listen", "127.0.0.1:0", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads("".join(process.stdout.readline() for _ in range(3)))["address"], tokens
        finally:
            process.terminate()


def questions(client: httpx.Client) -> dict[str, list[str]]:
    """By name: the paths that are asked in turn."""
    commits = client.get("/commits", params={"limit": 500}).json()["items"]
    last = client.get("/incidents", params={"limit": 1}).json()["items"][0]["number"]
    chance = random.Random(1)
    found = {
        "health": ["/health"],
        "commits: a page of 50": ["/commits"],
        "commits: a page deep inside": [f"/commits?after={one}" for one in _deep(client, "/commits", 40)],
        "commits: of a target": [f"/commits?target={name}" for name in SERVICES],
        "commits: search": [f"/commits?search={name}" for name in SERVICES],
        "commit: show": [f"/commits/{one['id']}" for one in commits],
        "incidents: a page of 50": ["/incidents"],
        "incidents: a page deep inside": [
            f"/incidents?after={one}" for one in _deep(client, "/incidents", 15)
        ],
        "incidents: of a service": [f"/incidents?service={name}" for name in SERVICES],
        "incident: show": [f"/incidents/{chance.randrange(1, last + 1)}" for _ in range(200)],
    }
    return {name: paths for name, paths in found.items() if paths}  # a small home is not deep


def _deep(client: httpx.Client, path: str, times: int) -> list[str]:
    found: list[str] = []
    for _ in range(times):
        query = {"limit": 500, **({"after": found[-1]} if found else {})}
        after = client.get(path, params=query).json()["next"]
        if after is None:
            break
        found.append(after)
    return found[len(found) // 2 :]


def _ask(address: str, token: str, paths: list[str], seconds: float, begin: Any, told: Any) -> None:
    """One client, in a process of its own; puts its times [s] into ``told``."""
    times = []
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
        client.get(paths[0])
        begin.wait()
        end, number = time.perf_counter() + seconds, random.randrange(1000)
        while (began := time.perf_counter()) < end:
            number += 1
            answer = client.get(paths[number % len(paths)])
            if answer.status_code == 429:
                time.sleep(float(answer.headers["Retry-After"]))
                continue
            answer.raise_for_status()
            times.append(time.perf_counter() - began)
    told.put(times)


def measure(
    address: str, tokens: list[str], paths: list[str], clients: int, seconds: float
) -> dict[str, Any]:
    """Milliseconds and requests per second of so many clients at one time."""
    context = multiprocessing.get_context("fork")
    begin, told = context.Barrier(clients), context.Queue()
    given = [
        (address, tokens[number % len(tokens)], paths, seconds, begin, told) for number in range(clients)
    ]
    processes = [context.Process(target=_ask, args=one) for one in given]
    for process in processes:
        process.start()
    times = sorted(one for _ in processes for one in told.get())
    for process in processes:
        process.join()
    return {
        "clients": clients,
        "requests/s": round(len(times) / seconds, 1),
        "p50 ms": round(statistics.median(times) * 1000, 2),
        "p99 ms": round(times[int(len(times) * 0.99)] * 1000, 2),
    }


def enqueue_to_start(home: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds from POST to "begun", one task after another."""
    taken, begun = [], []
    with (
        serving(home) as (address, tokens),
        httpx.Client(
            base_url=address, headers={"Authorization": f"Bearer {tokens[0]}"}, timeout=60
        ) as client,
    ):
        for _ in range(rounds):
            began = time.perf_counter()
            task = client.post("/store/verifications", json={}).json()
            taken.append((time.perf_counter() - began) * 1000)
            begun.append((_begun(client, task["id"]) - task["created_wall_ns"]) / 1e6)
    return {
        "rounds": rounds,
        "POST, median ms": round(statistics.median(taken), 1),
        "begun, median ms": round(statistics.median(begun), 1),
        "begun, most ms": round(max(begun), 1),
    }


def _begun(client: httpx.Client, task: str) -> int:
    """When it was begun first; waits until it has ended."""
    with client.stream("GET", f"/tasks/{task}/events") as stream:
        for _ in stream.iter_lines():
            pass
    begun: int = client.get(f"/tasks/{task}").json()["begun_wall_ns"]
    return begun


def main() -> None:
    """Ask, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with serving(options.home) as (address, tokens):
        with httpx.Client(
            base_url=address, headers={"Authorization": f"Bearer {tokens[-1]}"}, timeout=60
        ) as client:
            asked = questions(client)
        for name, paths in asked.items():
            for clients in options.clients:
                rows.append({"question": name} | measure(address, tokens, paths, clients, options.seconds))
    with tempfile.TemporaryDirectory() as empty:
        tasks = enqueue_to_start(Path(empty), options.rounds)
    if options.json:
        print_json({"questions": rows, "a task": tasks})
    else:
        print_table(f"Over HTTP, {options.seconds:g} s each; load {load_average()}", rows)
        print_table("A task, from being asked for to its begin", [tasks])


if __name__ == "__main__":
    main()

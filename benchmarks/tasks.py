"""Durable tasks: from asking until it begins, and how many a second; beside bare DBOS with the same queue.

    python benchmarks/tasks.py [--tasks 40] [--burst 300] [--rounds 3] [--json]

Each round is a process of its own with a new directory: first tasks one after another, a new one when the one before has ended and
after a pause of no fixed length (so that they do not fall in step with the polling), then a burst, of which the time until the last
has ended is told. The tasks do nothing; Relive's have one step. Told are the medians of the rounds. ``idle`` is the processor time
that a server takes which has nothing to do, in percent of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from dbos import DBOS, DBOSClient
from pydantic import BaseModel

from relive.config import Settings
from relive.server.task import TaskState
from relive.server.task_context import TaskAttempt, TaskKind, never_done
from relive.server.tasks import Tasks

_AT_ONE_TIME = 4
_POLL = 0.05
_IDLE = 5.0  # [s]


class _Empty(BaseModel):
    pass


def _relive(directory: Path, tasks: int, burst: int) -> dict[str, float]:
    begun: dict[str, int] = {}
    ended = threading.Semaphore(0)

    def run(work: TaskAttempt, _given: _Empty) -> _Empty:
        begun[work.task] = time.time_ns()
        work.step("nothing", _Empty, result=_Empty, found=never_done)
        ended.release()
        return _Empty()

    settings = Settings(home=directory, tasks=_AT_ONE_TIME, tasks_waiting=10_000)
    served = Tasks(settings, [TaskKind("nothing", _Empty, _Empty, run)])
    served.start()

    def ask() -> Callable[[], int]:
        task = served.submit("nothing", _Empty(), by="benchmark").id
        return lambda: begun[task]

    measured = _measure(ask, ended, tasks, burst)
    while served.page(limit=1, state=TaskState.RUNNING).tasks:
        time.sleep(0.01)
    served.stop()
    return measured


def _dbos(directory: Path, tasks: int, burst: int) -> dict[str, float]:
    begun: list[int] = []
    ended = threading.Semaphore(0)
    url = f"sqlite:///{directory}/dbos.sqlite"
    DBOS(
        config={
            "name": "bare",
            "system_database_url": url,
            "application_version": "1",
            "executor_id": "bare",
            "enable_otlp": False,
            "log_level": "ERROR",
        }
    )

    @DBOS.workflow()
    def nothing() -> None:
        begun.append(time.time_ns())
        DBOS.run_step(None, lambda: None)
        ended.release()

    DBOS.migrate(url)
    client = DBOSClient(system_database_url=url)
    client.register_queue(
        "q", worker_concurrency=_AT_ONE_TIME, global_concurrency=_AT_ONE_TIME, polling_interval_sec=_POLL
    )
    client.destroy()
    DBOS.launch()

    def ask() -> Callable[[], int]:
        DBOS.enqueue_workflow("q", nothing)
        return lambda: begun[-1]

    measured = _measure(ask, ended, tasks, burst)
    DBOS.destroy(workflow_completion_timeout_sec=1)
    return measured


def _measure(
    ask: Callable[[], Callable[[], int]], ended: threading.Semaphore, tasks: int, burst: int
) -> dict[str, float]:
    waits = []
    for number in range(tasks + 1):
        time.sleep(random.uniform(0.0, 2 * _POLL))
        asked = time.time_ns()
        begun = ask()
        ended.acquire()
        if number:  # the first waits for threads to start
            waits.append((begun() - asked) / 1e6)
    time.sleep(1.0)
    before = time.process_time()
    time.sleep(_IDLE)
    idle = 100 * (time.process_time() - before) / _IDLE
    began = time.perf_counter()
    for _ in range(burst):
        ask()
    for _ in range(burst):
        ended.acquire()
    rate = burst / (time.perf_counter() - began)
    return {
        "p50 ms": statistics.median(waits),
        "p95 ms": statistics.quantiles(waits, n=20)[-1],
        "tasks/s": rate,
        "idle %": idle,
    }


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--burst", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", choices=["relive", "dbos"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        measure = {"relive": _relive, "dbos": _dbos}[arguments.one]
        with tempfile.TemporaryDirectory() as directory:
            print(json.dumps(measure(Path(directory), arguments.tasks, arguments.burst)))
        return
    rounds: dict[str, list[dict[str, float]]] = {"dbos": [], "relive": []}
    for _ in range(arguments.rounds):
        for one, found in rounds.items():
            command = [sys.executable, __file__, "--one", one]
            command += ["--tasks", str(arguments.tasks), "--burst", str(arguments.burst)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
    medians = {
        one: {key: round(statistics.median(row[key] for row in found), 1) for key in found[0]}
        for one, found in rounds.items()
    }
    if arguments.json:
        print(json.dumps({"load": os.getloadavg()[0], "medians": medians}))
        return
    print(f"load {os.getloadavg()[0]:.1f}")
    for one, values in medians.items():
        print(f"{one:8}", "  ".join(f"{key} {value:8.1f}" for key, value in values.items()))


if __name__ == "__main__":
    _main()

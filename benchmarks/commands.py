"""What commands take as typed, beside a Python that does nothing and two commands of others.

    python benchmarks/commands.py [--rounds 15] [--json]

A small service runs in a capsule, with some commits and a branch. In each round every command is run once, in turns: *forked*, by
the fork server that the service has started, and *executed*, with ``RELIVE_FORK_SERVER=0``, as where there is none; beside them
``python -c pass``, ``git log`` of a repository of three commits and ``podman ps`` where there is one. Medians of the time from a
process's start to its end, and ``cpu`` of the process itself, in milliseconds. For what does work, ``work`` is the same operation
called in a process that has imported it: what a command takes above that is what it costs to be typed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _lab import Lab, add_options, lab, load_average, median, print_json, print_table

from relive.config import Settings
from relive.operations.branches import ExecParams, execute
from relive.operations.branches import stop as stop_named
from relive.operations.committing import CommitParams, commit
from relive.operations.progress import Silent
from relive.operations.restoring import RestoreParams, restore

_RELIVE = str(Path(sysconfig.get_path("scripts")) / "relive")
_NAME = "sleeper"
_READING = ("ps", "log", "incidents", f"show {_NAME}", "health")
_LIMIT = 60.0  # [s] for the service to run
_NOTHING = Silent()

Took = tuple[float, float]  # wall, CPU of the process itself: milliseconds


def timed(words: list[str], environment: dict[str, str], directory: Path) -> tuple[Took, str]:
    """Run it, and what it said; ends the benchmark where it fails."""
    with (directory / "said").open("w+b") as said:
        began = time.perf_counter()
        process = subprocess.Popen(
            words,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        _, status, used = os.wait4(process.pid, 0)
        took = (time.perf_counter() - began) * 1e3
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode()
    if process.returncode != 0:
        raise SystemExit(f"error: {' '.join(words)}: {text}")
    return (took, (used.ru_utime + used.ru_stime) * 1e3), text


@contextmanager
def service(place: Lab, environment: dict[str, str]) -> Iterator[None]:
    """It runs, and so does a fork server."""
    process = subprocess.Popen(
        [_RELIVE, "run", "--name", _NAME, "--every", "never", "--", "sleep", "100000"],
        env=environment,
        cwd=place.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _LIMIT
        asked = [_RELIVE, "commit", _NAME]
        while subprocess.run(
            asked, env=environment, cwd=place.directory, capture_output=True, check=False
        ).returncode:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit("error: the service does not run")
            time.sleep(0.1)
        yield
    finally:
        subprocess.run([_RELIVE, "stop", "--all"], env=environment, capture_output=True, check=False)
        subprocess.run([_RELIVE, "stop", _NAME], env=environment, capture_output=True, check=False)
        process.wait(_LIMIT)


def peers(directory: Path) -> dict[str, list[str]]:
    """Commands of others that look something up."""
    found = {"python -c pass": [sys.executable, "-c", "pass"]}
    if shutil.which("git"):
        repository = directory / "repository"
        subprocess.run(["git", "init", "-q", repository], check=True)
        by = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        for text in "abc":
            subprocess.run(
                ["git", "-C", repository, *by, "commit", "-q", "--allow-empty", "-m", text], check=True
            )
        found["git log"] = ["git", "-C", str(repository), "--no-pager", "log"]
    if (
        shutil.which("podman")
        and not subprocess.run(["podman", "ps"], capture_output=True, check=False).returncode
    ):
        found["podman ps"] = ["podman", "ps"]
    return found


def in_process(settings: Settings) -> dict[str, float]:
    """The work of each command that does some, in milliseconds."""

    def took(work: Callable[[], Any]) -> tuple[float, Any]:
        began = time.perf_counter()
        value = work()
        return (time.perf_counter() - began) * 1e3, value

    found: dict[str, float] = {}
    found["commit"], _ = took(lambda: commit(settings, CommitParams(target=_NAME), _NOTHING))
    found["restore"], branch = took(lambda: restore(settings, RestoreParams(ref=_NAME), _NOTHING))
    found["exec"], _ = took(
        lambda: execute(settings, ExecParams(branch=branch.id, command=["true"]), _NOTHING)
    )
    found["stop"], _ = took(lambda: stop_named(settings, [branch.id], _NOTHING))
    return found


def working(way: dict[str, str], directory: Path) -> dict[str, Took]:
    """As typed."""
    found: dict[str, Took] = {}
    found["commit"], _ = timed([_RELIVE, "commit", _NAME], way, directory)
    found["restore"], said = timed([_RELIVE, "restore", _NAME], way, directory)
    branch = next(line for line in said.splitlines() if " " not in line)
    found["exec"], _ = timed([_RELIVE, "exec", branch, "--", "true"], way, directory)
    found["stop"], _ = timed([_RELIVE, "stop", branch], way, directory)
    return found


def measure(place: Lab, rounds: int) -> list[dict[str, Any]]:
    """A row for each command."""
    environment = {**os.environ, **place.environment()}
    environment.pop("RELIVE_FORK_SERVER", None)
    ways = {"forked": environment, "executed": {**environment, "RELIVE_FORK_SERVER": "0"}}
    others = peers(place.directory)
    took: dict[tuple[str, str], list[Took]] = {}
    work: dict[str, list[float]] = {}

    def note(command: str, way: str, value: Took) -> None:
        took.setdefault((command, way), []).append(value)

    with service(place, environment):
        for _ in range(rounds):
            for command, words in others.items():
                note(command, "executed", timed(words, environment, place.directory)[0])
            for way, variables in ways.items():
                for command in _READING:
                    words = [_RELIVE, *command.split()]
                    note(command, way, timed(words, variables, place.directory)[0])
                for command, value in working(variables, place.directory).items():
                    note(command, way, value)
            for command, value in in_process(place.settings).items():
                work.setdefault(command, []).append(value)
    rows: list[dict[str, Any]] = []
    for command in dict.fromkeys(command for command, _ in took):
        row: dict[str, Any] = {"command": command}
        for way in ways:
            values = took.get((command, way))
            row[way] = median(one[0] for one in values) if values else None
        for way in ways:
            values = took.get((command, way))
            row[f"cpu {way}"] = median(one[1] for one in values) if values else None
        row["work"] = median(work[command]) if command in work else None
        rows.append(row)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 15)
    options = parser.parse_args()
    with lab(options) as place:
        rows = measure(place, options.rounds)
    result = {"rounds": options.rounds, "load": load_average(), "rows": rows}
    if options.json:
        print_json(result)
        return
    print_table(f"ms, medians of {options.rounds} rounds (load {result['load']})", rows)


if __name__ == "__main__":
    main()

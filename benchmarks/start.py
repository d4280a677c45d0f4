"""What a command costs before it does anything: Python's start, and the modules that it imports.

    python benchmarks/start.py [--rounds 15] [--against SRC] [--python PROGRAM] [--json]

Commands with nothing to do, on an empty RELIVE_HOME, in turns with a Python that does nothing and with one that imports the two
libraries that every command needs. ``cpu`` is user and system time of the process and its children, ``wall`` from its start to
its end. ``--against`` names the ``src`` directory of another state of Relive, such as one of ``git worktree add``, whose commands
run in turns with these; ``--python`` an interpreter, such as that of a virtual environment with nothing but what Relive needs.
Modules are compiled before anything is measured, also where PYTHONDONTWRITEBYTECODE is set.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _lab import Lab, add_options, lab, load_average, median, print_json, print_table

_OURS = Path(__file__).resolve().parent.parent / "src"
_RELIVE = "import sys; from relive.cli import main; sys.exit(main())"
_COMMANDS = (
    "--version",
    "--help",
    "ps",
    "log",
    "incidents",
    "show nothing",
    "commit nobody",
    "restore nothing",
    "restore nothing --as podman",
    "replay 1",
)
_BARE = {"python": "pass", "python, typer and pydantic": "import typer, pydantic"}


def check(place: Lab, python: str, source: Path, words: list[str]) -> None:
    """Run it once; ends the benchmark if it breaks. Whether the command has an answer does not matter."""
    environment = place.environment() | {"PYTHONPATH": str(source)}
    command = [python, "-c", *words]
    done = subprocess.run(
        command, env=environment, cwd=place.directory, capture_output=True, text=True, check=False
    )
    if "Traceback" in done.stderr:
        raise SystemExit(f"error: {' '.join(words[1:])} of {source}: {done.stderr}")


def run(place: Lab, python: str, source: Path, words: list[str]) -> tuple[float, float]:
    """(wall, cpu) in milliseconds of one process."""
    environment = place.environment() | {"PYTHONPATH": str(source)}
    began = time.perf_counter()
    process = subprocess.Popen(
        [python, "-c", *words],
        env=environment,
        cwd=place.directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return (time.perf_counter() - began) * 1e3, (used.ru_utime + used.ru_stime) * 1e3


def measure(place: Lab, rounds: int, python: str, against: Path | None) -> list[dict[str, Any]]:
    """A row for each case."""
    cases = {(name, _OURS): [code] for name, code in _BARE.items()}
    for command in _COMMANDS:
        for source in filter(None, (against, _OURS)):
            cases[command, source] = [_RELIVE, *command.split()]
    found: dict[tuple[str, Path], list[tuple[float, float]]] = {case: [] for case in cases}
    for (_, source), words in cases.items():
        check(place, python, source, words)
    for _ in range(rounds):
        for case, words in cases.items():
            found[case].append(run(place, python, case[1], words))
    rows = []
    for name in (*_BARE, *_COMMANDS):
        wall, cpu = (median(one[index] for one in found[name, _OURS]) for index in (0, 1))
        row: dict[str, Any] = {"command": name, "wall": wall, "cpu": cpu}
        if against is not None:
            before = found.get((name, against), [])
            row |= {
                "wall_before": median(one[0] for one in before),
                "cpu_before": median(one[1] for one in before),
            }
            row["cpu_ratio"] = cpu / row["cpu_before"]
        rows.append(row)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, 15)
    parser.add_argument("--against", type=Path, help="src directory of another state of Relive")
    parser.add_argument("--python", default=sys.executable, help="interpreter (default: this one)")
    options = parser.parse_args()
    sources = [_OURS, *([options.against.resolve()] if options.against is not None else [])]
    subprocess.run([options.python, "-m", "compileall", "-q", *sources], check=True)
    with lab(options) as place:
        rows = measure(place, options.rounds, options.python, sources[1] if len(sources) > 1 else None)
    result = {"rounds": options.rounds, "load": load_average(), "rows": rows}
    if options.json:
        print_json(result)
        return
    print_table(f"ms, medians of {options.rounds} rounds (load {result['load']})", rows)


if __name__ == "__main__":
    main()

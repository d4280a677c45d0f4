"""The loads of ``following.py``, each a process of its own: python _following_loads.py LOAD DIRECTORY

It makes ``ready`` in the directory, waits for ``go``, works there, and leaves what it measured in ``result`` as JSON.
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

TRANSACTIONS, RATE = 2000, 2000  # in one round, and each second
SOURCES = 60


def sqlite(directory: Path, mode: str) -> dict[str, float]:
    """Transactions at a rate: microseconds of one."""
    base = sqlite3.connect(directory / "x.db", isolation_level=None)
    base.execute(f"pragma journal_mode={mode}")
    base.execute("pragma synchronous=off")
    base.execute("create table if not exists t (n integer primary key, text)")
    taken = []
    due = time.perf_counter()
    for number in range(TRANSACTIONS):
        due += 1 / RATE
        while time.perf_counter() < due:
            time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        base.execute("insert or replace into t values (?, ?)", (number % 500, "x" * 100))
        taken.append((time.perf_counter() - began) * 1e6)
    taken.sort()
    return {"p50 us": statistics.median(taken), "p99 us": taken[len(taken) * 99 // 100]}


def small_files(directory: Path, count: int = 2000) -> dict[str, float]:
    """Files made, moved and removed: microseconds of one."""
    began = time.perf_counter()
    for number in range(count):
        with (directory / f".{number}").open("w") as file:
            file.write("x")
        (directory / f".{number}").rename(directory / f"{number}")
    for number in range(count):
        (directory / f"{number}").unlink()
    return {"us a file": (time.perf_counter() - began) / count * 1e6}


def build(directory: Path) -> dict[str, float]:
    """make -j2 of many small sources: seconds."""
    names = [f"part{number}" for number in range(SOURCES)]
    for name in names:
        (directory / f"{name}.c").write_text(
            f'#include <stdio.h>\n#include <stdlib.h>\nint {name}(void) {{ return printf("{name}"); }}\n'
        )
    rule = "%.o: %.c\n\tgcc -O1 -c -o $@ $<\n"
    (directory / "Makefile").write_text(f"all: {' '.join(f'{name}.o' for name in names)}\n{rule}")
    began = time.perf_counter()
    subprocess.run(["make", "-j2", "-s", "-C", directory], check=True)
    return {"s": time.perf_counter() - began}


def main() -> None:
    """Run one."""
    name, directory = sys.argv[1], Path(sys.argv[2])
    (directory / "ready").touch()
    while not (directory / "go").exists():
        time.sleep(0.005)
    if name == "small files":
        found = small_files(directory)
    elif name == "make -j2":
        found = build(directory)
    else:
        found = sqlite(directory, name.rpartition(" ")[2])
    (directory / "new").write_text(json.dumps(found))
    os.replace(directory / "new", directory / "result")  # noqa: PTH105 - whole at once


if __name__ == "__main__":
    main()

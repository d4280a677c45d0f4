"""What ``relive check`` foretells beside what commits then cost.

    python benchmarks/check.py [--rounds 5] [--json]

Each program is started, checked once, and committed ``--rounds`` times: as a plain process (pause, and the bytes of a first
commit), or, where it is marked so, in a capsule, whose later commits say what changed since the one before. Programs:
``python-N`` with N MB of random bytes, of which a capsule's writes to one page in a hundred between commits; ``words-N``, the same
with text; ``forks-N``, N children.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

RELIVE = Path(sysconfig.get_path("scripts")) / "relive"
_SERVICE = """
import os, sys, time
kind, _, size = sys.argv[1].partition("-")
size = int(size)
if kind == "python": held = bytearray(os.urandom(size * 10**6))
if kind == "words":
    held = bytearray(b"".join(b"%d is the number of this line, held by a service\\n" % n for n in range(size * 20000)))
if kind == "forks":
    held = bytearray(10**6)
    for _ in range(size):
        if os.fork() == 0:
            import ctypes; ctypes.CDLL(None).prctl(1, 9)
            while True: time.sleep(60)
sys.stdout.write("ready\\n"); sys.stdout.flush()
while True:
    time.sleep(0.01)
    if len(sys.argv) > 2:
        for place in range(0, len(held), 4096 * 100): held[place] = (held[place] + 1) % 256
"""
PROGRAMS = (
    ("python-12", False),
    ("python-100", False),
    ("words-30", False),
    ("forks-7", False),
    ("words-30", True),
    ("python-100", True),
)


class Lab:
    """Relive with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.environment = dict(os.environ, RELIVE_HOME=str(home))

    def __call__(self, *words: str) -> Any:
        """A command's answer; ``check`` may end with 1."""
        done = subprocess.run(
            [RELIVE, *words], env=self.environment, capture_output=True, text=True, check=False
        )
        answer = json.loads(done.stdout)
        if "error" in answer:
            raise SystemExit(str(answer["error"]))
        return answer


def plain(lab: Lab, name: str, rounds: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(what was foretold, the commits) of a process that Relive did not start."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVICE, name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            foretold = lab("check", "--json", f"pid:{process.pid}")["estimate"]
            return foretold, [lab("commit", "--json", f"pid:{process.pid}") for _ in range(rounds)]
        finally:
            process.kill()


def capsule(lab: Lab, name: str, rounds: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The same of a capsule, which writes."""
    service = f"bench-{name}"
    lab(
        "run", "--json", "--detach", "--every", "never", "--no-recorder", "--name", service,
        "--", sys.executable, "-c", _SERVICE, name, "writes",
    )  # fmt: skip
    try:
        while "ready" not in lab("logs", "--json", service).get("stdout", "ready"):
            time.sleep(0.05)
        time.sleep(1)
        foretold = lab("check", "--json", service)["estimate"]
        return foretold, [lab("commit", "--json", service) for _ in range(rounds)]
    finally:
        lab("stop", "--json", service)


def measure(rounds: int) -> list[dict[str, Any]]:
    """A row for each program."""
    rows = []
    for name, runs_in_capsule in PROGRAMS:
        home = Path(tempfile.mkdtemp(prefix="relive-bench-"))
        try:
            foretold, commits = (capsule if runs_in_capsule else plain)(Lab(home), name, rounds)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        pauses = [one["pause_us"] for one in commits]
        rows.append(
            {
                "program": name + (", capsule" if runs_in_capsule else ""),
                "foretold": foretold,
                "pause_us": [min(pauses), median(pauses), max(pauses)],
                "memory": commits[0]["bytes"],
                "first": commits[0]["new_bytes"],
                "later": median(one["new_bytes"] for one in commits[1:]),
                "load": os.getloadavg()[0],
            }
        )
    return rows


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = measure(options.rounds)
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    print(
        "| program | pause expected | pause | memory expected | saved | first expected | first | later expected | later | load |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        said = row["foretold"]
        print(
            f"| {row['program']} | {_span(said['pause_us'], 1000)} ms "
            f"| {' / '.join(f'{one / 1000:.0f}' for one in row['pause_us'])} ms "
            f"| {(said['memory'] + said['shared']) / 1e6:.1f} MB | {row['memory'] / 1e6:.1f} MB "
            f"| {_span(said['first'], 1e6)} MB | {row['first'] / 1e6:.2f} MB "
            f"| {_span(said['later'], 1e3)} KB | {row['later'] / 1e3:.1f} KB "
            f"| {row['load']:.1f} |"
        )


def _span(found: dict[str, int], unit: float) -> str:
    return f"{found['least'] / unit:.3g} to {found['most'] / unit:.3g}"


if __name__ == "__main__":
    main()

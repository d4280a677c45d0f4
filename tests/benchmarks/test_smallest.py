"""Each program of ``benchmarks/`` still runs, in its smallest form, and ends with a table.

What it measures is not looked at here: that is other work's, on a quiet machine. A part that a stopwatch does not find any more
counts as a failure, since its row would be left out silently. Those that take little are run with every other test, the others by
``make smoke``: 120 s of CPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relive.config import load_settings

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
_LIMIT = 300.0  # [s] for one, also on a machine that is busy
_OWN_TEST = {  # these look at what is measured too
    "burst": "proxies/test_burst_benchmark.py",
    "chaos": "chaos/test_chaos.py",
    "fidelity": "real/test_fidelity_benchmark.py",
    "files": "store/test_files_benchmark.py",
    "following": "real/test_following_benchmark.py",
    "growth": "real/test_growth_benchmark.py",
    "soak": "benchmarks/test_soak.py",
    "zdtm": "benchmarks/test_zdtm.py",
}
LEFT_OUT = {"recorder"}  # it installs others' packages from the network
SMALLEST: dict[str, str] = {
    "api": "--seconds 0.2 --clients 1 --rounds 1",
    "archives": "--rounds 1 --megabytes 20",
    "bisection": "--commits 4 --rounds 1 --replays 1",
    "branch": "--rounds 1 --program python-12 --many 2",
    "check": "--rounds 2",
    "cold": "--rounds 1 --megabytes 20",
    "commands": "--rounds 1",
    "containers": "--rounds 1 --megabytes 20",
    "dashboard": "--commits 1500 --incidents 60 --rounds 1",
    "egress": "--seconds 0.02 --rounds 1",
    "front": "--rounds 1",
    "index": "--commits 20 --incidents 5 --rounds 3",
    "inspection": "--rounds 1 --megabytes 5 --objects 1000",
    "lazy": "--rounds 1 --megabytes 20",
    "long_series": "--commits 3 --series fastapi",
    "micro": "--megabytes 14 --requests 4",
    "micro_workers": "--workers 2 --commits 2",
    "memory": "--case many --services 1",
    "pause": "--rounds 1 --program python-12",
    "proxy": "--seconds 0.1 --rounds 1 --service raw",
    "rate": "--seconds 0.5 --rounds 1",
    "reproduction": "--times 1 --only dnsplans",
    "rollback": "--pages 10 --rounds 1",
    "start": "--rounds 1",
    "store": "--rounds 1 --series fastapi",
    "stubs": "--calls 5 --rounds 1",
    "stubs_postgresql": "--calls 5 --rounds 1",
    "tasks": "--tasks 2 --burst 2 --rounds 1",
    "tracer": "--rounds 1 --share 0.02",
    "trees": "--rounds 1",
    "many": "--rounds 1 --count 2",
    "whole": "--rounds 1 --seconds 0.2 --every 0.6 --connections 2 --answer small --service node",
}
# At most 2.5 s of CPU each, and no waiting.
ALWAYS = {
    "branch",
    "egress",
    "index",
    "many",
    "micro",
    "pause",
    "stubs",
    "stubs_postgresql",
    "tracer",
    "trees",
}


def _run(name: str, *options: str, home: Path) -> str:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / f"{name}.py", *options],
        env={**os.environ, "RELIVE_HOME": str(home), "RELIVE_TOOLS": str(load_settings().tools_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is no more" not in done.stderr, done.stderr
    return done.stdout


def test_each_benchmark_has_its_smallest_form() -> None:
    found = {path.stem for path in BENCHMARKS.glob("[!_]*.py")}
    assert found == set(SMALLEST) | set(_OWN_TEST) | LEFT_OUT
    assert set(SMALLEST) >= ALWAYS
    for path in _OWN_TEST.values():
        assert (Path(__file__).parents[1] / path).is_file()


@pytest.mark.real
@pytest.mark.timeout(2 * _LIMIT)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in ALWAYS else [pytest.mark.benchmark]) for name in SMALLEST],
)
def test_it_ends_with_a_table(name: str, tmp_path: Path) -> None:
    options = SMALLEST[name].split()
    if name == "api":  # it asks a home that another one fills
        _run("index", *SMALLEST["index"].split(), "--home", str(tmp_path), "--fill-only", home=tmp_path)
        options += ["--home", str(tmp_path)]
    said = _run(name, *options, home=tmp_path)
    # What stands below the table, such as ratios, may have a paragraph of its own.
    last = [block.splitlines() for block in said.strip().split("\n\n")][-2:]
    assert any(len(rows) >= 2 and re.search(r"\b\d", rows[-1]) for rows in last), said

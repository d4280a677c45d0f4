"""``benchmarks/following.py`` still measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "following.py"


def test_a_load_is_measured_in_each_way() -> None:
    options = ["--rounds", "1", "--seconds", "1", "--load", "sqlite delete", "--json"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert {row["figure"] for row in rows} == {"p50 us", "p99 us"}
    assert all(row[way] > 0 for row in rows for way in ("none", "followed", "committed"))

"""``benchmarks/burst.py`` still measures what it says: the smallest form of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "burst.py"


@pytest.mark.real
def test_a_burst_is_answered_whole_behind_the_proxy() -> None:
    options = ["--rounds", "1", "--clients", "8", "--every", "never", "--json"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = {(row["way"], row["clients"]): row for row in json.loads(done.stdout)["rows"]}
    assert len(rows) == 4
    for clients in ("burst", "slow"):
        row = rows["--every never", clients]
        assert (row["answered"], row["failed"], row["incidents"]) == (8, 0, 0)

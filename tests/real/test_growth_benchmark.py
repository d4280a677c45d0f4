"""``benchmarks/growth.py`` still measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "growth.py"


def test_the_growth_of_the_payments_examples_store_is_told(tmp_path: Path) -> None:
    options = ["--rounds", "2", "--service", "payments", "--directory", str(tmp_path), "--json"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["commits"] >= 2
    assert row["actions"] > 0
    assert 0 < row["grows KB"] < 1000 * row["first MB"]
    assert row["words KB"] > 0
    assert list(tmp_path.iterdir()) == []

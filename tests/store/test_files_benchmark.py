"""``benchmarks/files.py`` still measures what it says; it compares what comes back byte by byte itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "files.py"


def test_the_benchmark_of_files_tells_of_each_case_plain_and_sealed(tmp_path):
    sizes = ["--rounds", "2", "--megabytes", "4", "--changed", "1", "--small", "40"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *sizes, "--directory", str(tmp_path), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["case"], row["store"]) for row in rows] == [
        (case, store) for case in ("large", "database", "small") for store in ("plain", "sealed")
    ]
    assert all(0 < row["grows KB"] < 1024 < row["first MB"] * 1024 for row in rows if row["case"] != "small")
    assert list(tmp_path.iterdir()) == []

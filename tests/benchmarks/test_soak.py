"""``benchmarks/soak.py``: it compares commits and branches, goes on from what is kept, and tells of what differs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# One byte of what memory is compared with is another.
_DIFFERS = """
import sys
sys.path.insert(0, {benchmarks!r})
import soak
import checkpoint.{module} as module

memory_of = module.memory_of
def otherwise(pid):
    found = memory_of(pid)
    at = next(at for at, page in found.items() if page.is_anonymous and any(page))
    found[at] = type(found[at])(bytes([found[at][0] ^ 1]) + found[at][1:])
    return found
module.memory_of = otherwise
sys.exit(soak.main())
"""
_SMALL = ("--kinds", "timerfd", "--restored-of", "1", "--seed", "3", "--no-nice", "--json")


def _run(*command: str, fails: bool = False) -> dict[str, Any]:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == fails, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.real
def test_what_is_counted_was_compared_and_a_run_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    command = [str(BENCHMARKS / "soak.py"), *_SMALL, "--keep", str(kept), "--count"]
    for count in ("1", "2", "2"):
        told = _run(*command, count)
        [*_, line] = told["table"]
        assert line["micro"] == int(count)
        assert line["restored"] == line["captures"] and line["differences"] == 0
    assert len(kept.read_text().splitlines()) == line["lives"] == 2


@pytest.mark.real
@pytest.mark.parametrize("module", ["test_micro_commits", "test_micro_soak"], ids=["commit", "branch"])
def test_a_byte_that_differs_is_told_with_the_life_to_run_again(module: str) -> None:
    program = _DIFFERS.format(benchmarks=str(BENCHMARKS), module=module)
    [differing] = _run("-c", program, *_SMALL, "--life", "4", fails=True)["differing"]
    assert differing["life"] == 4
    assert "AssertionError" in differing["difference"]

"""Relive, CRIU and their helpers killed at random moments; what is checked is told at the top of ``benchmarks/chaos.py``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

CHAOS = Path(__file__).parent.parent.parent / "benchmarks" / "chaos.py"


@pytest.mark.real
@pytest.mark.parametrize(
    ("rounds", "slower", "options"),
    [
        # In this order: watchdog, all of a CLI, agent with CRIU, CRIU, tracer, proxy; before, while and after it is frozen.
        pytest.param(6, 20, ["--seed", "8447"], marks=pytest.mark.timeout(240)),
        pytest.param(300, 1, [], marks=[pytest.mark.soak, pytest.mark.timeout(3000)]),
    ],
)
def test_no_kill_harms_the_service_or_the_store(rounds: int, slower: int, options: list[str]):
    """A failure prints the seed with which the same rounds are played again, and the directory that was kept."""
    done = subprocess.run(
        [sys.executable, CHAOS, "--rounds", str(rounds), "--slower", str(slower), "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    assert told["problems"] == [], done.stderr
    assert len(told["rounds"]) == rounds
    # Of a commit that nobody sees under way, nobody is killed.
    assert [one["phase"] for one in told["rounds"]].count("idle") < rounds / 2
    assert told["sums"]["commits told durable"]  # in a round, or of the agent that came after it
    assert done.returncode == 0

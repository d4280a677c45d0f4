"""Memory that runs out: committed before the kernel kills, and killed again in a replay, within the branch's own limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.waiting import eventually

from .harness import PROGRAMS, Refused, Relive, compiled

LIMIT_MIB = 96
FIRST_MIB = 76  # above the level of the commit, and far enough below the limit for a slow machine


@pytest.mark.parametrize("who", ["the service", "a worker"])
def test_a_service_is_committed_before_memory_runs_out_and_is_killed_again(
    relive: Relive, tmp_path: Path, who: str
) -> None:
    go = tmp_path / "go"
    words = [str(compiled(PROGRAMS / "hungry.c", tmp_path)), str(FIRST_MIB), str(go)]
    words += ["worker"] if who == "a worker" else []
    try:
        capsule = relive.run(*words, options=("--memory", f"{LIMIT_MIB}M"))
    except Refused as refused:
        if refused.code == "host-incapable":
            pytest.skip(f"no memory cgroup here: {refused.cause}")
        raise
    (commit,) = eventually(lambda: relive.commits(capsule.name), "a commit before memory runs out")
    assert commit["trigger"] == "incident"
    assert not relive("incidents", capsule.name), "nothing has failed so far"
    go.touch()
    (incident,) = eventually(lambda: relive.incidents(capsule.name), "the kill")
    assert incident["sighting"]["kind"] == "out-of-memory"
    assert incident["at"] == incident["before"] == commit["id"]
    done = relive.say("replay", str(incident["number"]))
    result = json.loads(done.stdout)
    (run,) = result["runs"]
    assert (done.returncode, run["verdict"]["kind"]) == (0, "reproduced"), json.dumps(run, indent=1)
    assert run["outcome"]["out_of_memory"]

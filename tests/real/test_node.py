"""A Node.js server: V8's memory, libuv's threads and event loop."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from relive.sandbox.branch import list_branches
from support.ports import free_port

from .harness import SERVICES, Commit, Relive, ask
from .scenario import lives_twice

node = shutil.which("node")


@pytest.mark.skipif(node is None, reason="needs node")
def test_node_server(relive: Relive, tmp_path: Path) -> None:
    port = free_port()
    capsule = relive.run(str(node), SERVICES / "counter.js", str(port), tmp_path / "counts")
    ask(port, "/state")
    commit, branches = lives_twice(relive, capsule, port)
    ticks = ask(branches[0].ports[port], "/state")["ticks"]
    while ask(branches[0].ports[port], "/state")["ticks"] == ticks:  # its timer runs on
        pass
    _tells_of_itself(relive, commit, port)


def _tells_of_itself(relive: Relive, commit: Commit, port: int) -> None:
    """By its inspector, in throw-away branches: also what its modules hold and do not export."""
    before = {one.facts.id for one in list_branches(relive.settings)}
    told = relive("inspect", commit.id, "--runtime")
    assert (told["runtime"], told["python"], told["java"]) == ("node", None, None)
    state = told["node"]
    assert state["waits"] == (state["frames"] == [])  # its timer may just have come
    assert 0 < state["heap"]["used"] <= state["heap"]["limit"]
    assert f"listens on 127.0.0.1:{port}" in [one["about"] for one in state["handles"]]
    (names,) = state["modules"].values()
    assert names["fs"].startswith("{")
    (worker,) = state["workers"]
    assert worker["title"].endswith("helper") and worker["waits"] and worker["frames"] == []
    assert [one["looked"] for one in worker["modules"].values()] == ["7"]
    assert relive("eval", commit.id, "looked + 1", "--module", "helper")["text"] == "8"
    assert relive("eval", commit.id, "count + 1")["text"] == str(int(names["count"]) + 1)
    ended = relive.say("eval", commit.id, "process.exit(3)")
    assert (ended.returncode, json.loads(ended.stdout)["outcome"]) == (1, "died")
    assert {one.facts.id for one in list_branches(relive.settings)} == before

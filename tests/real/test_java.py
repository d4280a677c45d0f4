"""A Java server on the platform's own JVM."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from relive.sandbox.branch import list_branches
from support.ports import free_port

from .harness import SERVICES, Commit, Refused, Relive, ask
from .scenario import lives_twice

SECRET = "correct-horse-battery-staple"


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs javac")
def test_java_server(relive: Relive, tmp_path: Path) -> None:
    subprocess.run(["javac", "-d", tmp_path, SERVICES / "Counter.java"], check=True)
    port = free_port()
    capsule = relive.run(
        "java",
        "-Xmx64m",
        f"-Dstore.password={SECRET}",
        "-Dsun.net.httpserver.nodelay=true",
        "-cp",
        tmp_path,
        "Counter",
        str(port),
        tmp_path / "counts",
    )
    ask(port, "/state")
    commit, _ = lives_twice(relive, capsule, port)
    assert commit.manifest.target.processes[0].threads > 10
    _tells_of_itself(relive, commit)


def _tells_of_itself(relive: Relive, commit: Commit) -> None:
    """By the mechanism that jcmd uses, in a throw-away branch."""
    before = {one.facts.id for one in list_branches(relive.settings)}
    told = relive("inspect", commit.id, "--runtime", "--most", "3")
    state = told["java"]
    assert told["runtime"] == "java" and "VM" in state["version"]
    stacks = {one["name"]: one["frames"] for one in state["threads"]}
    assert any("HttpServer" in line or "ServerImpl" in line for line in stacks["HTTP-Dispatcher"])
    assert len(state["classes"]) == 3 < state["classes_left_out"]
    assert state["properties"]["store.password"] == "<secret>" and SECRET not in json.dumps(told)
    with pytest.raises(Refused, match="can evaluate no expression"):
        relive("eval", commit.id, "1 + 1")
    assert {one.facts.id for one in list_branches(relive.settings)} == before

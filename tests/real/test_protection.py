"""A policy never dies: a disk without inodes, and then with room again. Whoever asks is told meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relive.kernel import procfs
from support.waiting import eventually

from .harness import PYTHON, Relive

WAITING = "import time\nwhile True: time.sleep(0.1)"


@pytest.fixture
def small_store(relive: Relive) -> Iterator[Path]:
    point = relive.home / "store"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=1500", "tmpfs", str(point)], check=True)
    yield point
    relive.close()
    subprocess.run(["umount", "-l", str(point)], check=True)


def health(relive: Relive, *names: str) -> tuple[int, Any]:
    said = relive.say("health", *names)
    return said.returncode, json.loads(said.stdout)


def _if_failing(found: tuple[int, Any]) -> tuple[int, Any] | None:
    return found if found[0] else None


def test_commits_by_the_clock_outlive_a_disk_without_inodes(relive: Relive, small_store: Path) -> None:
    relive("run", "--detach", "--every", "500ms", "--name", "waits", "--", str(PYTHON), "-c", WAITING)
    eventually(lambda: len(relive("log")) >= 2, "commits by the clock")
    assert health(relive, "waits") == (0, [{"name": "waits", "protected": True, "troubles": []}])

    ballast = small_store / "ballast"
    ballast.mkdir()
    for number in range(os.statvfs(ballast).f_ffree):
        with contextlib.suppress(OSError):  # the service is committed meanwhile
            (ballast / str(number)).touch()
    status, (told,) = eventually(lambda: _if_failing(health(relive)), "a trouble")
    (trouble,) = told["troubles"]
    assert status == 9
    assert (trouble["part"], trouble["code"]) == ("commits", "disk-full")
    assert "inodes" in trouble["remedy"]
    (listed,) = [one for one in relive("ps") if one["id"] == "waits"]
    assert listed["troubles"][0]["code"] == "disk-full"

    for path in ballast.iterdir():
        path.unlink()
    before = len(relive("log"))
    eventually(lambda: health(relive)[0] == 0, "protected again")
    eventually(lambda: len(relive("log")) > before, "commits by the clock again")
    relive("verify", "--data")


def test_a_service_that_does_not_run_is_none_that_is_protected(relive: Relive) -> None:
    status, told = health(relive, "nobody")
    assert (status, told["error"]["code"]) == (3, "target-unknown")
    assert health(relive) == (0, [])


def test_a_service_whose_agent_does_not_answer_is_told_as_not_protected(relive: Relive) -> None:
    capsule = relive.run(PYTHON, "-c", WAITING, name="waits")
    noted = relive.home / "capsules" / "waits" / capsule.life / "agent.pid"
    agent = int(noted.read_text().split()[0])
    os.kill(agent, 19)
    try:
        status, (told,) = health(relive)
    finally:
        os.kill(agent, 18)
    assert status == 9
    assert [(one["part"], one["code"]) for one in told["troubles"]] == [("agent", "agent-unreachable")]
    assert health(relive)[0] == 0


def test_an_agent_ends_when_its_home_is_deleted_and_the_service_goes_on(relive: Relive) -> None:
    capsule = relive.run(PYTHON, "-c", WAITING, name="waits")
    life = relive.home / "capsules" / "waits" / capsule.life
    agent = int((life / "agent.pid").read_text().split()[0])
    assert health(relive)[0] == 0  # it answers
    init = json.loads((life / "state.json").read_text())["init"]
    try:
        with (life / "agent.log").open() as log:
            shutil.rmtree(relive.home, ignore_errors=True)
            eventually(
                lambda: (found := procfs.read_stat(agent)) is None or found.has_ended, "the agent's end"
            )
            assert "its directory was removed" in log.read()
        assert procfs.exists(capsule.pid)
    finally:
        os.kill(init, signal.SIGKILL)
        eventually(lambda: not procfs.exists(capsule.pid), "the service's end")
        relive.home.mkdir(exist_ok=True)

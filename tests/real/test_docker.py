"""Containers of a real Docker: committed and watched as podman's are. Skipped where no engine answers."""

from __future__ import annotations

import itertools
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.containers.docker.api import get
from relive.errors import ReliveError
from support.waiting import eventually

from .harness import Relive
from .watched import Service, WatchedDocker

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def docker() -> Iterator[WatchedDocker]:
    """The engine that is there, with one image more for a while."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    if shutil.which("docker") is None:
        pytest.skip("there is no `docker` in PATH, by which these tests start containers")
    try:
        get("info")
    except ReliveError as error:
        pytest.skip(f"{error.message}: {error.cause}")
    made = WatchedDocker()
    yield made
    made.close()


@pytest.fixture
def service(relive: Relive, docker: WatchedDocker) -> Iterator[Service]:
    made = Service(docker, relive, f"relive-test-{os.getpid()}-{next(NUMBERS)}")
    yield made
    docker.ask("rm", "--force", made.name)
    eventually(lambda: relive("ps") == [], "the watch ends with its container")


def test_a_container_is_committed_again_and_again(service: Service, tmp_path: Path) -> None:
    """A later commit has the first for a parent and costs little; what it changed in its files is in it."""
    service.start()
    first, second = (service("commit", service.target) for _ in range(2))
    assert second["parent"] == first["id"]
    assert second["new_bytes"] < first["new_bytes"] / 4
    shown = service("show", second["id"])
    assert (shown["target"]["kind"], shown["container"]["engine"]) == ("container", "docker")
    service("export", second["id"], str(tmp_path / "x.tar"), "--format=checkpointctl")
    with tarfile.open(tmp_path / "x.tar") as file:
        assert {"config.dump", "spec.dump", "checkpoint/inventory.img"} <= set(file.getnames())
    assert service.ask("/say", port=service.port).startswith("said")


def test_failures_are_seen_and_the_next_start_is_watched(service: Service) -> None:
    service.start("--restart=on-failure:5", inside=True)
    begun = service.watch("--log-pattern", "PANIC", every="start")
    assert begun["inside"] and begun["missing"] == []
    eventually(lambda: service.relive.commits(service.name), "the first commit")
    assert service.ask("/price?USD") == "status 500"
    raised = service.incident("exception")
    assert raised["at"] is not None and "in price (watched.py:" in raised["sighting"]["summary"]
    service.ask("/say?PANIC")
    service.incident("log")
    with pytest.raises(OSError):
        service.ask("/exit?7", port=service.port)
    assert service.incident("exit")["sighting"]["exit_status"] == 7
    eventually(lambda: service.ask("/price?EUR").startswith("2 "), "the next start answers")
    eventually(
        lambda: service.relive("ps")[0]["pid"] == service.engine.state(service.name)["Pid"], "it is watched"
    )


def test_a_container_that_is_not_there_is_named(service: Service) -> None:
    done = service.relive.say("commit", "docker:nobody-at-all")
    assert "target-unknown" in done.stdout

"""Who keeps the port of a watched service, with the real ``relive-front`` and no agent."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.config import load_settings
from relive.kernel import procfs
from relive.model.capsule import CapsuleSpec
from relive.model.commit_policy import Policy
from relive.model.life_paths import LifePaths
from relive.proxies.listeners import receive_listener
from relive.watching.public_port import PublicPort, _known
from support.ports import free_port
from support.waiting import eventually


@pytest.fixture
def paths(tmp_path: Path) -> Iterator[LifePaths]:
    made = LifePaths(tmp_path / "life")
    made.directory.mkdir()
    yield made
    if made.directory.exists():
        made.closed.touch()


@pytest.fixture
def spec() -> CapsuleSpec:
    return CapsuleSpec(
        name="web",
        command=["web"],
        directory="/",
        environment={},
        policy=Policy(at_start=False),
        listen=("127.0.0.1", free_port()),
        upstream=("127.0.0.1", 1),
    )


def keepers(paths: LifePaths) -> list[int]:
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        words = procfs.command_of(pid)
        if str(paths.directory) in words and words[0].endswith("relive-front"):
            found.append(pid)
    return found


def begun(paths: LifePaths) -> list[int]:
    """A program that was just executed has no words for a moment: execve(2) closes descriptors before it sets them."""
    return eventually(lambda: keepers(paths), "it runs")


def test_the_next_agent_takes_it_over(paths: LifePaths, spec: CapsuleSpec) -> None:
    first, second = (PublicPort(load_settings(), spec, paths) for _ in range(2))
    first.open()
    (keeper,) = begun(paths)
    second.open()
    assert keepers(paths) == [keeper]
    second.close()
    first.close()
    assert keepers(paths) == []


def test_another_has_the_same_listener(paths: LifePaths, spec: CapsuleSpec) -> None:
    port = PublicPort(load_settings(), spec, paths)
    port.open()
    (keeper,) = begun(paths)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: not procfs.exists(keeper), "it is gone")
    port.open()
    listener, line, _ = receive_listener(paths.front_socket)
    assert listener.getsockname() == spec.listen
    listener.close()
    line.close()
    port.close()
    assert keepers(paths) == []


def test_a_stranger_with_its_number_is_not_killed(paths: LifePaths, spec: CapsuleSpec) -> None:
    """GIVEN one that an earlier agent has left, and whose number was given to another program; THEN that one lives on."""
    first, second = (PublicPort(load_settings(), spec, paths) for _ in range(2))
    first.open()
    second.open()
    assert second._keeper is not None
    first.close()
    with subprocess.Popen(["sleep", "infinity"]) as stranger:
        # Not in one tick of the clock, as it may be here.
        second._keeper = second._keeper._replace(pid=stranger.pid, start_ticks=second._keeper.start_ticks - 1)
        second.close()
        # A signal is there when kill(2) returns; what was killed ends at once.
        stranger.terminate()
        assert stranger.wait(60) == -signal.SIGTERM


def test_one_that_has_ended_meanwhile_is_not_known_by_its_number() -> None:
    ours, its = socket.socketpair()
    with ours:
        known = _known(os.getpid(), ours)
        assert known is not None and known.pid == os.getpid()
        its.close()
        assert _known(os.getpid(), ours) is None


@pytest.mark.parametrize("how", ["closed", "removed"])
def test_it_ends_with_the_watch(paths: LifePaths, spec: CapsuleSpec, how: str) -> None:
    port = PublicPort(load_settings(), spec, paths)
    port.open()
    (keeper,) = begun(paths)
    if how == "closed":
        paths.closed.touch()
    else:
        shutil.rmtree(paths.directory)
    eventually(lambda: keeper not in keepers(paths), "it has ended")
    port.close()

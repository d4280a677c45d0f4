"""A `relive restore --as podman` that was killed: its network and files go with the next one, unless a container lives there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.containers.podman.restore import restoring
from relive.containers.podman.restore.network import has_processes, make_network, remove_network
from relive.kernel.claims import claimed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Path]:
    """What a killed one leaves: a network that is kept, copies of volumes, no state."""
    directory = tmp_path / "containers" / "1a2b3c4d"
    (directory / "volumes").mkdir(parents=True)
    (directory / "volumes" / "data").write_bytes(b"copied")
    make_network(directory / "network", [])
    os.utime(directory, (0, 0))
    yield directory
    remove_network(directory / "network")


def test_what_a_killed_restore_left_is_swept(left: Path) -> None:
    assert not has_processes(left / "network")
    restoring._sweep(left.parent)
    assert not left.exists()
    assert str(left) not in Path("/proc/self/mountinfo").read_text()


def test_one_that_is_under_way_is_not(left: Path) -> None:
    with claimed(left):
        restoring._sweep(left.parent)
    assert (left / "volumes" / "data").exists()


def test_one_whose_container_runs_is_not(left: Path) -> None:
    command = ["nsenter", f"--net={left / 'network'}", "sh", "-c", "echo in; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as inside:
        assert inside.stdout is not None and inside.stdout.readline() == b"in\n"
        assert has_processes(left / "network")
        restoring._sweep(left.parent)
        assert (left / "volumes" / "data").exists()
        inside.kill()
    restoring._sweep(left.parent)
    assert not left.exists()

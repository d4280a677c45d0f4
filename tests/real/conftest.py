"""Fixtures of the tests on real services; what they are made of is in ``harness``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.forker import Forker

from .containers import Pods
from .harness import Process, Relive
from .podman import why_not


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session", autouse=True)
def commands(forker: Forker) -> None:
    """Commands of every ``Relive`` are forked."""
    Relive.commands = forker


@pytest.fixture(scope="session")
def podman_works() -> None:
    """Where CI promises a podman that works, its lack is a failure."""
    found = why_not()
    if found is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"podman cannot be tried: {found}")


@pytest.fixture(scope="session")
def pods(podman_works: None) -> Iterator[Pods]:
    """One podman whose containers have this machine's programs; who starts some removes them."""
    made = Pods()
    yield made
    made.close()


@pytest.fixture
def relive(request: pytest.FixtureRequest) -> Iterator[Relive]:
    # Not below tmp_path: Relive hides its home from the service, and the service's files lie there.
    home = Path(tempfile.mkdtemp(prefix="relive-"))
    made = Relive(home, request.node.name.removeprefix("test_"))
    yield made
    made.close()
    shutil.rmtree(home)


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    running: list[Process] = []

    def begin(*command: str | Path, **options: Any) -> Process:
        running.append(Process(*command, **options))
        return running[-1]

    yield begin
    for process in running:
        process.close()


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory for a service's files, on a disk, that every user can enter."""
    directory = Path(tempfile.mkdtemp(prefix="relive-files-", dir="/var/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)

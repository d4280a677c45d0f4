from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .task_server import TaskServers


@pytest.fixture(scope="session")
def _task_servers() -> Iterator[TaskServers]:
    made = TaskServers()
    yield made
    made.close()


@pytest.fixture
def serve(_task_servers: TaskServers) -> Iterator[TaskServers]:
    """Starts servers that do tasks; they are killed after the test."""
    yield _task_servers
    _task_servers.end_all()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    point = tmp_path / "disk"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(point)], check=True)
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)

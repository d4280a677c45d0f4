"""Fixtures of the tests on real services; what they are made of is in ``harness``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .harness import MEASURED, Process, Relive


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.real)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What the commits and restores of this run cost; only noise-free enough to see that nothing is absurd."""
    if not MEASURED:
        return
    load = os.getloadavg()[0]
    terminalreporter.section(f"milliseconds per service (load average {load:.1f})")
    terminalreporter.write_line(f"{'service':<28}{'pause':>8}{'durable':>9}  restores")
    for name in dict.fromkeys(name for name, _, _ in MEASURED):
        of = {
            what: [value for one, kind, value in MEASURED if one == name and kind == what]
            for what in ("pause", "durable", "restore")
        }
        restores = " ".join(f"{value:.0f}" for value in of["restore"])
        first = [f"{of[what][0]:.1f}" if of[what] else "-" for what in ("pause", "durable")]
        terminalreporter.write_line(f"{name:<28}{first[0]:>8}{first[1]:>9}  {restores}")


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

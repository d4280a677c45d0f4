"""A doctor to call: the command in a process of its own, or single probes; and obstacles to put in its way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from relive.config import Settings, load_settings
from relive.doctor import CHECKLIST, Finding, examine
from relive.doctor.probe import Probe

COMMAND = "import sys; from relive.cli import main; sys.argv[0] = 'relive'; main()"
# The same of some rows alone, for who looks at no other.
ONLY = """
import relive.doctor.checklist as checklist
checklist.examine.__defaults__ = (tuple(one for one in checklist.CHECKLIST if one.name in {rows!r}),)
"""
LIMIT = 100.0  # [s]
MARK = "_RELIVE_DOCTOR_TEST"  # not RELIVE_...: settings of that form are checked


@dataclass(frozen=True)
class Said:
    """What a ``relive doctor`` said, and the mark that every process it started carries in its environment."""

    status: int
    stdout: str
    stderr: str
    mark: str

    @property
    def findings(self) -> dict[str, dict[str, Any]]:
        return {one["name"]: one for one in json.loads(self.stdout)["findings"]}


@pytest.fixture(scope="session")
def tools() -> Path:
    """The tools that set-up made."""
    return load_settings().tools_path


@pytest.fixture
def doctor(tmp_path: Path, tools: Path) -> Callable[..., Said]:
    """Run ``relive doctor --json``, through the command line ``before``; ``arguments`` replace ``--json``.

    ``rows``: only these are tried; None: all.
    """

    def run(*, home: Path = tmp_path, **others: Any) -> Said:
        return _run(home, tools, **others)

    return run


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> tuple[Said, Path]:
    """What it says of this host with nothing in its way, once for all who look at that, and the home it had, an empty directory."""
    home = tmp_path_factory.mktemp("home")
    return _run(home, tools), home


def _run(
    home: Path,
    tools: Path,
    *,
    before: Sequence[str] = (),
    arguments: Sequence[str] = ("--json",),
    environment: Mapping[str, str] | None = None,
    program: str = COMMAND,
    rows: Collection[str] | None = None,
) -> Said:
    if rows is not None:
        program = ONLY.format(rows=rows) + program
    mark = uuid.uuid4().hex
    given = {"RELIVE_HOME": str(home), "RELIVE_TOOLS": str(tools), MARK: mark, **(environment or {})}
    done = subprocess.run(
        [*before, sys.executable, "-c", program, "doctor", *arguments],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        cwd="/",
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return Said(done.returncode, done.stdout, done.stderr, mark)


@pytest.fixture
def settings(tmp_path: Path, tools: Path) -> Settings:
    return load_settings(home=tmp_path, tools=tools)


@pytest.fixture
def try_one(settings: Settings) -> Callable[..., Finding]:
    """Run one probe of the checklist, by name, or any other."""

    def run(probe: str | Probe, *, settings: Settings = settings, **changes: Any) -> Finding:
        if isinstance(probe, str):
            probe = next(one for one in CHECKLIST if one.name == probe)
        (finding,) = examine(settings, [replace(probe, **changes)])
        return finding

    return run


def marked(mark: str) -> Iterator[int]:
    """Living processes that carry the mark."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                environment = Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if f"{MARK}={mark}".encode() in environment:
                yield int(name)


def in_own_mounts(script: str) -> list[str]:
    """A command line to run another through, after a shell script in a mount namespace of its own."""
    return [
        "unshare",
        "--mount",
        "--propagation=private",
        "bash",
        "-ec",
        f'{script}\nexec "$@"',
        "own-mounts",
    ]

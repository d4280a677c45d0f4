"""Runs small programs with the recorder in them, in every CPython of this host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import relive
from relive.agent.capsule.bytecode import compile_recorder
from relive.recording.events import Event, EventKind
from relive.recording.rings import RingReader

INPROCESS = Path(relive.__file__).parent.parent / "relive_inprocess"
_VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")


def pythons() -> dict[str, str]:
    """Interpreters of this host by version, that of the tests among them."""
    found = {f"{sys.version_info[0]}.{sys.version_info[1]}": sys.executable}
    for version in _VERSIONS:
        for path in (shutil.which(f"python{version}"), *_from_pyenv(version)):
            if version not in found and path is not None and _runs(path):
                found[version] = path
                # As before a service starts: else each program would compile it anew, which takes 50 ms.
                compile_recorder(INPROCESS, [path], os.environ)
    return found


def _from_pyenv(version: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return [str(path) for path in sorted(root.glob(f"{version}.*/bin/python"))]


def _runs(path: str) -> bool:
    return subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


PYTHONS = pythons()
# Another Python, with services' libraries in it, that tests of those shall run instead of this one.
LIBRARIES_PYTHON = os.environ.get("LIBRARIES_PYTHON", sys.executable)
each_python = pytest.mark.parametrize("python", PYTHONS.values(), ids=PYTHONS.keys())


@dataclass(frozen=True)
class Ran:
    """A program that has ended, and what its recorder had recorded."""

    status: int
    out: str
    err: str
    events: list[Event]

    def of(self, kind: EventKind) -> list[Event]:
        return [event for event in self.events if event.kind is kind]


@pytest.fixture
def run_recorded(tmp_path: Path) -> Callable[..., Ran]:
    """Run a program's text; ``options`` as in ``relive_recorder.options``."""

    def run(program: str, python: str = LIBRARIES_PYTHON, **options: object) -> Ran:
        rings = tmp_path / "rings"
        rings.mkdir(exist_ok=True)
        environment = os.environ | {
            "PYTHONPATH": str(INPROCESS),
            "RELIVE_RECORDER": json.dumps({"rings": str(rings), **options}),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        file = tmp_path / "program.py"
        file.write_text(program)
        done = subprocess.run(
            [python, str(file)], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        events: list[Event] = []
        for ring in rings.glob("*.ring"):
            reader = RingReader(ring)
            events += reader.read_new()
            reader.close()
        return Ran(done.returncode, done.stdout, done.stderr, sorted(events, key=lambda event: event.mono_ns))

    return run

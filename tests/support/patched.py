"""The examples as their readers get them: with the patch applied, and their programs loaded as modules."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

__all__ = ["loaded", "patched"]

_LEFT_BY_RUNS = ("__pycache__", "data")


def patched(example: Path, directory: Path) -> Path:
    """A copy of the example in ``directory`` with its patch applied, as a reader would apply it."""
    copy = directory / "examples" / example.name
    shutil.copytree(example, copy, ignore=lambda folder, _: _LEFT_BY_RUNS if folder == str(example) else ())
    patch = ["patch", "-p1", "-i", str(example / "fix.patch")]
    subprocess.run(patch, cwd=directory, check=True, capture_output=True)
    return copy


def loaded(program: Path) -> ModuleType:
    """The program as a module of its own each time."""
    spec = importlib.util.spec_from_file_location(f"{program.parent.name}_{program.stem}", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

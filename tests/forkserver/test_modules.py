"""Nobody forks code that is not on disk any more."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.forkserver.modules import ModuleFiles


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Path]:
    """The file of a module that is imported; it was last changed before everything."""
    path = tmp_path / "imported.py"
    path.write_text("value = 1\n")
    spec = importlib.util.spec_from_file_location("relive_test_imported", path)
    assert spec is not None and spec.loader is not None
    sys.modules["relive_test_imported"] = made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    yield path
    del sys.modules["relive_test_imported"]


def loaded() -> ModuleFiles:
    return ModuleFiles.loaded(since_ns=time.time_ns() + 10**9)


def test_what_was_not_touched_is_current(module: Path):
    assert loaded().are_current()


@pytest.mark.parametrize("keeps_time", [False, True])
def test_another_text_is_not(module: Path, keeps_time: bool):
    """Not even where whoever installed it gave it the old time and length."""
    files, before = loaded(), module.stat()
    module.write_text("value = 2\n")
    if keeps_time:
        os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not files.are_current()


def test_a_file_in_its_place_is_not(module: Path, tmp_path: Path):
    files = loaded()
    (tmp_path / "new").write_text("value = 1\n")
    (tmp_path / "new").rename(module)
    assert not files.are_current()


def test_one_that_is_gone_is_not(module: Path):
    files = loaded()
    module.unlink()
    assert not files.are_current()


def test_what_changed_while_it_was_imported_is_not(module: Path):
    assert not ModuleFiles.loaded(since_ns=module.stat().st_ctime_ns).are_current()

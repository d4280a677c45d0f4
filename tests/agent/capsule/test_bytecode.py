"""The recorder is compiled ahead, by interpreters that nobody but root could have put there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from relive.agent.capsule.bytecode import compile_recorder, interpreter_of

PYTHON = Path(sys.executable).resolve()


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    (tmp_path / "recorder").mkdir()
    (tmp_path / "recorder" / "module.py").write_text("x = 1\n")
    return tmp_path / "recorder"


def script(path: Path, first: str) -> Path:
    path.write_text(f"{first}\n")
    path.chmod(0o755)
    return path


def test_the_interpreter_a_command_names(tmp_path):
    environment = {"PATH": f"{PYTHON.parent}:{tmp_path}:/usr/bin"}
    script(tmp_path / "serve", f"#!{PYTHON}")
    script(tmp_path / "serve-by-env", f"#!/usr/bin/env {PYTHON.name}")
    assert interpreter_of([str(PYTHON), "app.py"], environment) == PYTHON
    assert interpreter_of(["serve"], environment) == PYTHON
    assert interpreter_of(["serve-by-env", "-w", "2"], environment) == PYTHON
    assert interpreter_of(["env", "A=1", "serve"], environment) == PYTHON


@pytest.mark.parametrize("command", [["sh", "-c", "python3 x"], ["no-such-program"], []])
def test_commands_that_name_none(command):
    assert interpreter_of(command, os.environ) is None


def test_it_is_compiled_once_and_again_when_it_changed(recorder):
    assert PYTHON in compile_recorder(recorder, [str(PYTHON)], os.environ)
    assert list(recorder.glob(f"__pycache__/module.{sys.implementation.cache_tag}.pyc"))
    assert compile_recorder(recorder, [str(PYTHON)], os.environ) == []
    later = (recorder / "module.py").stat().st_mtime_ns + 10**10
    os.utime(recorder / "module.py", ns=(later, later))
    assert PYTHON in compile_recorder(recorder, [str(PYTHON)], os.environ)


def test_an_interpreter_that_others_may_write_is_not_run(recorder, tmp_path):
    place = tmp_path / "bin"
    place.mkdir()
    mine = place / PYTHON.name
    script(mine, f"#!/bin/sh\ntouch {tmp_path}/ran")
    place.chmod(0o777)
    assert mine not in compile_recorder(recorder, [str(mine)], os.environ)
    assert not (tmp_path / "ran").exists()
    place.chmod(0o755)
    shutil.chown(mine, 65534)
    assert mine not in compile_recorder(recorder, [str(mine)], os.environ)
    assert not (tmp_path / "ran").exists()

"""Compiling the recorder ahead, for the interpreters that may load it.

A service sees the recorder's files read-only, and so can keep no bytecode of them: each of its Python processes would compile all
of it at every start, which takes longer than all the rest. So Relive does it, as root, before a service starts.

Danger: nothing that somebody else than root could have put there may be run for this. A service's own virtual environment is
not asked; the interpreter that it is a link to is, when it and the directory it lies in belong to root alone.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import structlog

__all__ = ["compile_recorder", "interpreter_of"]

_PYTHON = re.compile(r"python(?:3(?:\.(?P<minor>[0-9]+))?)?t?")
_OLDEST = 8  # of Python 3, that the recorder works in
_USUAL = ("/usr/bin", "/usr/local/bin")
_PATIENCE = 60  # [s] for one interpreter


def compile_recorder(recorder: Path, command: Sequence[str], environment: Mapping[str, str]) -> list[Path]:
    """Compile for the interpreter that a command names, and for the host's usual ones, where it was not done before.

    A failure costs the service time at its start and nothing else, so it is only logged.

    Returns:
        The interpreters that compiled something.
    """
    named = interpreter_of(command, environment)
    found = [*([named] if named is not None else []), *_usual()]
    used = []
    for interpreter in dict.fromkeys(path.resolve() for path in found):
        if not _is_fresh(recorder, interpreter) and _is_roots(interpreter):
            used += _compile(recorder, interpreter)
    return used


def interpreter_of(command: Sequence[str], environment: Mapping[str, str]) -> Path | None:
    """The Python that a command is run by: named by itself, by the first line of its script, or behind ``env``."""
    words = list(command)
    for _ in range(4):  # a script's interpreter may be a script again
        if not words:
            return None
        found = shutil.which(words[0], path=environment.get("PATH", os.defpath))
        if found is None:
            return None
        path = Path(found)
        if _PYTHON.fullmatch(path.name):
            return path
        if path.name == "env":
            words = [word for word in words[1:] if "=" not in word and not word.startswith("-")]
            continue
        with path.open("rb") as file:
            first = file.read(256).partition(b"\n")[0]
        if not first.startswith(b"#!"):
            return None
        words = os.fsdecode(first[2:]).split()
    return None


def _usual() -> Iterable[Path]:
    for directory in _USUAL:
        for path in sorted(Path(directory).glob("python3.*")):
            match = _PYTHON.fullmatch(path.name)
            if match is not None and int(match["minor"] or 0) >= _OLDEST:
                yield path


def _is_fresh(recorder: Path, interpreter: Path) -> bool:
    match = _PYTHON.fullmatch(interpreter.name)
    if match is None or match["minor"] is None:
        return False
    for source in recorder.rglob("*.py"):
        compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-3{match['minor']}.pyc"
        try:
            if compiled.stat().st_mtime_ns < source.stat().st_mtime_ns:
                return False
        except FileNotFoundError:
            return False
    return True


def _is_roots(interpreter: Path) -> bool:
    return all(
        path.stat().st_uid == 0 and not path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        for path in (interpreter, interpreter.parent)
    )


def _compile(recorder: Path, interpreter: Path) -> list[Path]:
    log = structlog.get_logger()
    command = [str(interpreter), "-I", "-S", "-m", "compileall", "-q", str(recorder)]
    try:
        # Isolated, without site-packages and with nothing of our environment: only the interpreter's own library is run.
        done = subprocess.run(
            command, env={}, cwd="/", capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("the recorder was not compiled ahead", interpreter=str(interpreter), cause=str(error))
        return []
    if done.returncode != 0:
        log.warning(
            "the recorder was not compiled ahead", interpreter=str(interpreter), cause=done.stdout[-500:]
        )
        return []
    return [interpreter]

"""What a replay of a command would lack, as far as it is recorded: known by its files, before it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import PurePath

from relive.check.command import interpreters, locate
from relive.check.pythons import find_python

__all__ = ["drops_recorder", "replay_lacks"]

_DROPPED = (
    "Nothing is recorded inside its Python processes: the command sets a PYTHONPATH of its own, by which the recorder comes in. "
    "Set it for Relive, which hands it on: `PYTHONPATH=... relive run ...`."
)
_SETS = re.compile(r"(?:^|[\s;&|(])PYTHONPATH=(?![^\s;&|]*\$\{?PYTHONPATH)")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "env"})  # which may start a Python


def drops_recorder(words: Sequence[str]) -> bool:
    """``env`` or a shell's ``-c`` replaces ``PYTHONPATH``, or clears the environment; what a script does is not seen."""
    if not words or PurePath(words[0]).name not in _SHELLS:
        return False
    if PurePath(words[0]).name != "env":
        return any(_SETS.search(word) for word in words[1:])
    given = list(
        takewhile(lambda word: word.startswith("-") or "=" in word or word == "PYTHONPATH", words[1:])
    )
    emptied = {"-", "-i", "--ignore-environment", "-uPYTHONPATH", "--unset=PYTHONPATH", "PYTHONPATH"}
    return any(word in emptied or word.startswith("PYTHONPATH=") for word in given) or drops_recorder(
        words[1 + len(given) :]
    )


def replay_lacks(words: Sequence[str], *, inside: bool, border: bool, tls: bool) -> str | None:
    """In a sentence or two; None where all that it asks of others is recorded.

    Args:
        inside: the recorder is in its Python processes.
        border: what it asks of others is recorded at its border; tls: with TLS opened.
    """
    if inside and drops_recorder(words):
        lacks = replay_lacks(words, inside=False, border=border, tls=tls)
        return f"{_DROPPED} {lacks}" if lacks is not None else _DROPPED
    if border and tls:
        return None
    asked = f"A replay will lack what it asks of other servers{' over TLS' if border else ''}"
    remedy = f"`--record-egress` {'opens' if border else 'records'} it"
    path = locate(words[0]) if words else None
    program = interpreters(path)[-1] if path is not None else None
    python = find_python(program) if program is not None else None
    if inside and python is not None and python.is_recorded:
        sockets = "" if border else " over plain sockets or"
        return f"{asked}{sockets} through libraries that the recorder inside does not know (docs/recorder.md names them): {remedy}."
    if program is not None and program.name in _SHELLS and inside:
        return f"{asked}, but for what the recorder knows inside its Python processes: {remedy}."
    return f"{asked}{'' if border else ', such as databases'}: {remedy}."

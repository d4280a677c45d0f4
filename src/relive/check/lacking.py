"""What a replay of a command would lack, as far as it is recorded: known by its files, before it runs."""

from __future__ import annotations

from collections.abc import Sequence

from relive.check.command import interpreters, locate
from relive.check.pythons import find_python

__all__ = ["replay_lacks"]

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "env"})  # which may start a Python


def replay_lacks(words: Sequence[str], *, inside: bool, border: bool, tls: bool) -> str | None:
    """In a sentence; None where all that it asks of others is recorded.

    Args:
        inside: the recorder is in its Python processes.
        border: what it asks of others is recorded at its border; tls: with TLS opened.
    """
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

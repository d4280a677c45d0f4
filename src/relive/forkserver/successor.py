"""The program that a process is replaced by: of a fork's, who asked for it is, since that one has the terminal, session and parent.

It imports little: commands wait for it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

from relive.forkserver.request import say

__all__ = ["Successor", "replace_asker", "report_exit", "succeed"]

_MOST_DESCRIPTORS = 1 << 20
_asker: socket.socket | None = None


class Successor(NamedTuple):
    """A program with its words, its whole environment and its working directory. It has this process's three streams only."""

    words: Sequence[str]
    environment: Mapping[str, str]
    directory: str

    @classmethod
    def read(cls, descriptor: int) -> Successor:
        """From a file in memory, which is closed. Raises ValueError."""
        with os.fdopen(descriptor, "rb") as file:
            file.seek(0)
            return cls(*json.load(file))

    def execute(self) -> NoReturn:
        """Replace this process; raises OSError, and then little of it is left."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.chdir(self.directory)
        os.closerange(3, _MOST_DESCRIPTORS)  # who started this one may have left some that can be inherited
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores for itself
            signal.signal(number, signal.SIG_DFL)
        os.execve(self.words[0], list(self.words), dict(self.environment))


def replace_asker(asker: socket.socket) -> None:
    """From now on ``succeed`` and ``report_exit`` are about the process at the other end."""
    global _asker  # noqa: PLW0603 - a process has one
    _asker = asker


def succeed(successor: Successor) -> NoReturn:
    """Have this process, or who asked for it, replaced by a program; raises OSError."""
    if _asker is None:
        successor.execute()
    file = os.memfd_create("relive-successor", os.MFD_CLOEXEC)
    with os.fdopen(file, "wb") as writing:
        writing.write(json.dumps(successor).encode())
        writing.flush()
        say(_asker, {"successor": True}, file)
    sys.exit(0)


def report_exit(status: int) -> None:
    """Say to who asked for it that this process now ends by itself, with this exit status: the server may be gone that would."""
    if _asker is not None:
        with suppress(OSError):
            say(_asker, {"status": status << 8})

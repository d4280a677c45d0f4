"""Fork servers that no other test has: a variable that begins with PYTHON has one of its own."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relive.forkserver.rendezvous import connect, meeting_place
from relive.forkserver.starting import ForkedProcess, fork_module
from support.waiting import eventually

__all__ = ["OwnServer", "own_variable"]


def own_variable() -> dict[str, str]:
    """For the environment of all that is to come from it."""
    return {"PYTHONRELIVETEST": os.urandom(8).hex()}


@dataclass
class OwnServer:
    """The server of all that is started with this environment."""

    environment: Mapping[str, str]

    @property
    def place(self) -> Path:
        return meeting_place(self.environment)

    def pid(self) -> int | None:
        """Of the server that listens; None where none does. It forks for the question, too."""
        connection = connect(self.place)
        if connection is None:
            return None
        with connection:
            told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int(struct.unpack("3i", told)[0])

    def fork(
        self, module: str = "relive.forkserver.trial", *options: str, output: int = subprocess.DEVNULL
    ) -> ForkedProcess:
        forked = fork_module(
            module,
            options,
            streams=(subprocess.DEVNULL, output, subprocess.DEVNULL),
            environment=self.environment,
            patient=True,
        )
        assert forked is not None
        return forked

    def kill(self) -> None:
        """It, and what it has left in its directory; its children go on."""
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: self.pid() is None)
        for left in self.place.parent.glob(f"{self.place.name}*"):
            left.unlink(missing_ok=True)

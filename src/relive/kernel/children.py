"""Child processes: hearing what one says, and ending one that has been asked to end, by a closed pipe or a signal."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from typing import IO, Protocol

__all__ = ["Endable", "StartedProcess", "read_until", "wait_or_kill"]

_PIECE = 65536  # [bytes]


class Endable(Protocol):
    """As ``subprocess.Popen``."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; raises subprocess.TimeoutExpired."""

    def kill(self) -> None:
        """SIGKILL."""


class StartedProcess:
    """A child that somebody else has started (CLONE_PARENT of clone(2)); has what is used of ``subprocess.Popen``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative for a signal; it is reaped then.

        Raises:
            subprocess.TimeoutExpired: it has not ended within so many seconds.
        """
        if self._status is None:
            if timeout is not None and not self._ends_within(timeout):
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def kill(self) -> None:
        """SIGKILL."""
        if self._status is None:  # else the number may be another's
            os.kill(self.pid, signal.SIGKILL)

    def _ends_within(self, limit: float) -> bool:
        handle = os.pidfd_open(self.pid)
        try:
            poller = select.poll()
            poller.register(handle, select.POLLIN)
            return bool(poller.poll(limit * 1000))
        finally:
            os.close(handle)


def wait_or_kill(process: Endable, limit: float) -> int:
    """Wait ``limit`` seconds for its own end, then kill it; returns its status, as ``Popen.wait`` does. It is reaped afterwards."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def read_until(pipe: IO[bytes], end: bytes | tuple[bytes, ...], limit: float) -> bytes:
    """What it writes to an unbuffered pipe, up to and with (one of) ``end``; less where the pipe closes, or after ``limit`` [s]."""
    poller = select.poll()  # ``select`` knows descriptors below 1024 only
    poller.register(pipe, select.POLLIN)
    deadline, said = time.monotonic() + limit, b""
    while not said.endswith(end):
        readable = poller.poll(max(0.0, deadline - time.monotonic()) * 1000)
        data = os.read(pipe.fileno(), _PIECE) if readable else b""
        if not data:
            break
        said += data
    return said

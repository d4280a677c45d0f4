"""Ending a child process that has been asked to end, by a closed pipe or a signal."""

from __future__ import annotations

import subprocess
from typing import Protocol

__all__ = ["Endable", "wait_or_kill"]


class Endable(Protocol):
    """As ``subprocess.Popen``."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; raises subprocess.TimeoutExpired."""

    def kill(self) -> None:
        """SIGKILL."""


def wait_or_kill(process: Endable, limit: float) -> int:
    """Wait ``limit`` seconds for its own end, then kill it; returns its status, as ``Popen.wait`` does. It is reaped afterwards."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()

"""Ending a child process that has been asked to end, by a closed pipe or a signal."""

from __future__ import annotations

import subprocess

__all__ = ["wait_or_kill"]


def wait_or_kill(process: subprocess.Popen[bytes], limit: float) -> int:
    """Wait ``limit`` seconds for its own end, then kill it; returns its status, as ``Popen.wait`` does. It is reaped afterwards."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()

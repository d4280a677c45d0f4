"""What people call the end of a process."""

from __future__ import annotations

import os
import signal

__all__ = ["shell_status", "signal_name"]


def shell_status(wait_status: int) -> int:
    """A raw wait status as a shell shows it: the exit code, or 128 and the signal's number."""
    code = os.waitstatus_to_exitcode(wait_status)
    return code if code >= 0 else 128 - code


def signal_name(number: int) -> str:
    """SIGSEGV for 11; the number itself where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

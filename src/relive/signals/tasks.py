"""Single tasks, threads as the kernel sees them: their state, and signals to them."""

from __future__ import annotations

import os

from relive.kernel import libc

__all__ = ["read", "send_to_task", "state_of"]

_SYS_TGKILL = {"x86_64": 234, "aarch64": 131}[os.uname().machine]


def send_to_task(process: int, tid: int, number: int) -> None:
    """tgkill(2): a signal for one thread; number 0 only asks whether the thread is there.

    Raises:
        ProcessLookupError: the process has no such thread.
    """
    libc.syscall(_SYS_TGKILL, process, tid, number)


def read(path: str) -> str:
    """A small file of /proc in one read; pathlib's way costs three times as much, and this is per signal."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536).decode(errors="replace")
    except ProcessLookupError as error:
        raise FileNotFoundError(path) from error
    finally:
        os.close(descriptor)


def state_of(tid: int) -> str:
    """The letter of a task's state (proc(5)), X when there is no such task."""
    try:
        return read(f"/proc/{tid}/stat").rpartition(") ")[2][:1]
    except FileNotFoundError:
        return "X"

"""The keeper: a process that shares the page daemon's table of descriptors, so that they stay open when that is killed.

A forked child's userfaultfd comes into the daemon's table the moment its event is read; were the daemon killed before it has
given process 1 a duplicate, the child would go on and read zeros. With the keeper there is no such moment: it sees the
daemon's end, hangs up the lifeline, and holds every descriptor until the branch is gone.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

from relive.kernel import libc
from relive.sandbox.lazy.lifeline import Lifeline

__all__ = ["DescriptorKeeper"]

_SYS_CLONE = 56
_CLONE_FILES = 0x00000400


class DescriptorKeeper:
    """Made by the daemon, from its only thread.

    Attributes:
        pid: its process, a child of the daemon.
        descriptor: a pidfd; readable when it has ended, which only another's SIGKILL can bring about.
    """

    def __init__(self, lifeline: Lifeline, note: Callable[[], None]) -> None:
        """Start it.

        Args:
            note: called in the keeper when the daemon has ended without ``dismiss``, before the branch is ended.
        """
        daemon = os.pidfd_open(os.getpid())
        self.pid = libc.syscall(_SYS_CLONE, _CLONE_FILES | signal.SIGCHLD, 0, 0, 0, 0)
        if self.pid == 0:
            _supervise(daemon, lifeline, note)
        self.descriptor = os.pidfd_open(self.pid)

    def dismiss(self) -> None:
        """End it: the daemon ends in order."""
        signal.pidfd_send_signal(self.descriptor, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _supervise(daemon: int, lifeline: Lifeline, note: Callable[[], None]) -> None:
    try:
        select.select([daemon], [], [])
        note()
    finally:
        try:
            lifeline.hang_up()
        finally:
            os._exit(0)

"""Accounting for the processes that were traced before the tracer stepped aside: who has ended since, and how."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from relive.kernel import pidfds, procfs
from relive.signals.messages import Exited
from relive.signals.tasks import state_of
from relive.signals.tracing import Identity

__all__ = ["TracedProcess", "ends", "forget"]

_OF_FILES = 4  # one in so many files that may be open is a handle


@dataclass(frozen=True, slots=True)
class TracedProcess:
    """A process that was traced.

    Attributes:
        who: as it was when it was let go of.
        handle: keeps what the kernel knows of its end; None for one of more processes than ``of_all`` takes handles of.
    """

    who: Identity
    handle: int | None

    @property
    def pid(self) -> int:
        """As the tracer sees it."""
        return self.who.pid

    @classmethod
    def of(cls, pid: int, *, with_handle: bool = True) -> TracedProcess | None:
        """A traced process, so that its number cannot become another's meanwhile; None when there is none."""
        try:
            handle = os.pidfd_open(pid) if with_handle else None
        except OSError:
            return None
        who = Identity.of(pid)
        if who is None:
            if handle is not None:
                os.close(handle)
            return None
        return cls(who, handle)

    @classmethod
    def of_all(cls, pids: Iterable[int]) -> list[TracedProcess]:
        """Of so many that other files can still be opened, with a handle."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _OF_FILES
        found = (cls.of(pid, with_handle=number < most) for number, pid in enumerate(pids))
        return [one for one in found if one is not None]

    @property
    def lives(self) -> bool:
        """It has not ended, and its number is not another's."""
        stat = procfs.read_stat(self.pid)
        if stat is None or stat.start_ticks != self.who.start_ticks:
            return False
        # A leader that has ended is a zombie as long as other threads live.
        return any(state_of(tid) not in "ZX" for tid in procfs.threads_of(self.pid))

    def end(self) -> Exited:
        """Its end, with a status where the kernel tells it."""
        stat = procfs.read_stat(self.pid)
        if stat is not None and stat.start_ticks == self.who.start_ticks:
            status: int | None = stat.exit_status  # its parent has not taken it yet
        else:
            status = pidfds.exit_status(self.handle) if self.handle is not None else None
        return self.who.ended(status)


def ends(known: Iterable[TracedProcess]) -> Iterator[Exited]:
    """The end of each process that is gone."""
    return (one.end() for one in known if not one.lives)


def forget(known: Iterable[TracedProcess]) -> None:
    """Let go of their handles."""
    for one in known:
        if one.handle is not None:
            with contextlib.suppress(OSError):
                os.close(one.handle)

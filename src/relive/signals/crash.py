"""A process whose fatal signal is withheld."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field

from relive.signals import signals

__all__ = ["DISMISSED", "HOLD_LIMIT", "Crash"]

HOLD_LIMIT = 60.0  # [s] for which a process may stand, unless whoever starts the tracer says how long its commits may take
DISMISSED = b"."  # what its guardian is told


@dataclass(slots=True)
class Crash:
    """A process whose fatal signal is withheld.

    Attributes:
        tid: the thread that got the signal.
        comm: name of that thread.
        pidfd: names the process even when its number is used again; closed by whoever releases it.
        comes_back: the fault happens again when the process runs on.
        stopped: its tasks that stand in group-stop.
        withheld: (tid, signal) of crashes of its other threads in the same moment, to be sent again.
        kept: see ``ptrace.kept_registers``.
        guard: pipe to its guardian (``guardian``); -1: it has none.
    """

    pid: int
    tid: int
    info: signals.SignalInfo
    comm: str
    pidfd: int
    comes_back: bool
    kept: tuple[int, ...] = ()
    stopped: set[int] = field(default_factory=set)
    withheld: list[tuple[int, int]] = field(default_factory=list)
    guard: int = -1

    def close(self) -> None:
        """Forget it: it is gone, or was let go of."""
        os.close(self.pidfd)
        if self.guard >= 0:
            with contextlib.suppress(OSError):  # the guardian may have been killed
                os.write(self.guard, DISMISSED)
            os.close(self.guard)

"""Processors before all ordinary work, for the few milliseconds in which somebody stands still until we are done."""

from __future__ import annotations

import os
import threading
from typing import Self

__all__ = ["BeforeOthers"]

_LEAST = 1  # the lowest of the real-time priorities: whatever else has one goes first, or takes turns
_ORDINARY = (os.SCHED_OTHER, os.SCHED_BATCH)


class BeforeOthers:
    """Within the block the threads that are added have real-time priority (SCHED_RR), which those that they start do not get.

    ``limit`` seconds after the first was added, or at the end of the block, they are as they were before. Where the kernel refuses
    it (it takes CAP_SYS_NICE, and real-time run time of the control group), they stay as they are: nothing depends on it but time.
    So do those that somebody has given another policy than an ordinary one. May be added to in any thread.
    """

    def __init__(self, limit: float) -> None:
        self._before: dict[int, int] = {}  # policy, by thread
        self._lock = threading.Lock()
        self._has_ended = False
        self._timer = threading.Timer(limit, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._end()

    def add(self, thread: int) -> None:
        """Of this process or another, by its number; one that has ended is no error."""
        with self._lock:
            try:
                policy = os.sched_getscheduler(thread)
                if not self._has_ended and policy in _ORDINARY:
                    os.sched_setscheduler(
                        thread, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(_LEAST)
                    )
                    self._before[thread] = policy
                    if not self._timer.ident:
                        self._timer.start()
            except OSError:
                return

    def _end(self) -> None:
        with self._lock:
            self._has_ended = True
            before, self._before = self._before, {}
            for thread, policy in before.items():
                try:
                    # Not one that has ended meanwhile, and whose number somebody else has.
                    if os.sched_getscheduler(thread) == os.SCHED_RR | os.SCHED_RESET_ON_FORK:
                        os.sched_setscheduler(thread, policy, os.sched_param(0))
                except OSError:
                    continue

"""Processors before all ordinary work, for the few milliseconds in which somebody stands still until we are done."""

from __future__ import annotations

import os
import threading
from typing import Self

__all__ = ["BeforeOthers"]

_LEAST = 1  # the lowest of the real-time priorities: whatever else has one goes first, or takes turns
_ABOVE = 2  # of the thread that ends it: those that are raised may be all that the processors get to
_ORDINARY = (os.SCHED_OTHER, os.SCHED_BATCH)
_RAISED = os.SCHED_RR | os.SCHED_RESET_ON_FORK


class BeforeOthers:
    """Within the block the threads that are added have real-time priority (SCHED_RR), which those that they start do not get.

    ``limit`` seconds after the first was added, or at the end of the block, they are as they were before. A thread that does only
    this sees to it, with a priority above theirs. Where it cannot be started, or the kernel refuses the priority (it takes
    CAP_SYS_NICE, and real-time run time of the control group), all stay as they are: nothing depends on it but time. So do those
    that somebody has given another policy than an ordinary one. May be added to in any thread.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._before: dict[int, int] = {}  # policy, by thread
        self._lock = threading.Lock()
        self._is_kept = False  # the limit: nobody is raised unless it is
        self._begun = threading.Event()
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep_limit, name="before-others", daemon=True)
        self._is_asked = threading.Event()

    def __enter__(self) -> Self:
        try:
            self._keeper.start()
        except RuntimeError:  # no more threads
            return self
        self._is_asked.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._begun.set()
        self._end()
        if self._keeper.ident is not None:
            self._keeper.join()

    def add(self, thread: int) -> None:
        """Of this process or another, by its number; one that has ended is no error."""
        with self._lock:
            try:
                policy = os.sched_getscheduler(thread)
                if self._is_kept and policy in _ORDINARY:
                    os.sched_setscheduler(thread, _RAISED, os.sched_param(_LEAST))
                    self._before[thread] = policy
                    self._begun.set()
            except OSError:
                return

    def _keep_limit(self) -> None:
        try:
            os.sched_setscheduler(0, _RAISED, os.sched_param(_ABOVE))
            self._is_kept = True
        except OSError:
            return
        finally:
            self._is_asked.set()
        self._begun.wait()
        self._over.wait(self._limit)
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_kept = False
            before, self._before = self._before, {}
            for thread, policy in before.items():
                _give_back(thread, policy)


def _give_back(thread: int, policy: int) -> None:
    # The second where the flag may not be taken away (RLIMIT_RTPRIO without CAP_SYS_NICE): it says nothing about ordinary policies.
    for given in (policy, policy | os.SCHED_RESET_ON_FORK):
        try:
            # Not one that has ended meanwhile, and whose number somebody else has.
            if os.sched_getscheduler(thread) == _RAISED:
                os.sched_setscheduler(thread, given, os.sched_param(0))
            return
        except PermissionError:
            continue
        except OSError:
            return

"""What commits cost a service of its time: how long it stood still, its first writes to pages afterwards, and its waits for a
processor while Relive used one.

Where a processor is free commits cost nothing but the first two. Where none is, a wait of the service counts as far as Relive used
a processor meanwhile: it may have waited for somebody else, so this is the most that commits can have cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from relive.kernel import procfs

__all__ = ["ServiceCost", "is_contended", "processor_time", "thread_times", "waited_for_processor"]

_WRITE = 0.8e-6  # [s] a page's first write after a micro-commit (docs/micro-commits.md)
_NS = 1e9
_CONTENDED = 4  # who waits for a processor for one part of the time in which it runs in so many does not have one for itself


def _scheduled(path: str) -> tuple[float, float]:
    """(seconds on a processor, seconds ready and waiting for one) of a thread (Documentation/scheduler/sched-stats.rst)."""
    try:
        ran, waited, _ = Path(path).read_bytes().split()
    except (OSError, ValueError):  # it has ended, or the kernel does not count
        return 0.0, 0.0
    return int(ran) / _NS, int(waited) / _NS


def waited_for_processor(root: int) -> dict[int, float]:
    """Seconds for which each thread of a tree of processes has waited for a processor since its start, by its number."""
    return {
        thread: _scheduled(f"/proc/{pid}/task/{thread}/schedstat")[1]
        for pid in procfs.tree_of(root)
        for thread in procfs.threads_of(pid)
    }


def processor_time(helper: int | None) -> float:
    """Seconds of a processor that this process has used, and a tree of helpers of one thread each; None: there is none."""
    helpers = procfs.tree_of(helper) if helper is not None else []
    return time.process_time() + sum(_scheduled(f"/proc/{pid}/schedstat")[0] for pid in helpers)


def thread_times() -> tuple[float, float]:
    """Seconds for which the calling thread has been on a processor, and was ready and waited for one, since its start."""
    return _scheduled("/proc/thread-self/schedstat")


def is_contended(before: tuple[float, float], after: tuple[float, float]) -> bool:
    """Between two ``thread_times`` other work took the processors, so whatever Relive does at the same time is done at its cost."""
    ran, waited = after[0] - before[0], after[1] - before[1]
    return waited * _CONTENDED > ran


class ServiceCost:
    """Of one service. Belongs to the agent's event loop.

    Args:
        waited: tells what each of the service's threads has waited for a processor, in all [s].
        used: tells what Relive has used of processors, in all [s].
    """

    def __init__(self, waited: Callable[[], dict[int, float]], used: Callable[[], float]) -> None:
        self._waited, self._used = waited, used
        self._before = waited(), used()
        self._felt = 0.0

    def note(self, pause_us: int, pages: int) -> None:
        """It has stood still, and pays for its next write to each of so many pages."""
        self._felt += pause_us / 1e6 + pages * _WRITE

    def take(self) -> float:
        """Seconds since the last call that commits have cost it, at most."""
        (waits_before, used_before), self._before = self._before, (self._waited(), self._used())
        waits, used = self._before
        # What had not begun before has waited since; what has ended meanwhile is not counted.
        waited = sum(seconds - waits_before.get(thread, 0.0) for thread, seconds in waits.items())
        felt, self._felt = self._felt, 0.0
        return felt + max(0.0, min(waited, used - used_before))

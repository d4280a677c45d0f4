"""Whether a service has done anything since its last commit, for ``--every change``.

Looked at from outside, once a second, at the cost of a few reads of ``/proc``:

- the threads there are, and the processor time each has used (``/proc/PID/task/TID/schedstat``, kernel documentation
  ``scheduler/sched-stats.rst``). A thread that came or went, or more than ``BUSY`` of processor time in a second, is a change;
- the recordings of what crosses the service's border: a file that was written to is a change, however little the request cost.

What a service uses while it waits (heartbeats of workers, timers of a virtual machine) must not count, so less than ``BUSY`` a
second does not. Time used while it is committed, by CRIU's code inside it, is not its own: ``committed`` begins anew behind it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from relive.kernel import procfs

__all__ = ["BUSY", "Activity", "ActivitySample", "look"]

BUSY = 0.002  # [s] of processor time for each second


class ActivitySample:
    """One look.

    Attributes:
        threads: nanoseconds of processor time by (pid, thread).
        written: when the newest file of a recording was written to [ns].
    """

    def __init__(self, threads: dict[tuple[int, int], int], written: int) -> None:
        self.threads, self.written = threads, written

    def used_since(self, earlier: ActivitySample) -> int:
        """Nanoseconds of processor time of threads that there were at both looks."""
        return sum(used - earlier.threads.get(thread, used) for thread, used in self.threads.items())

    def differs(self, earlier: ActivitySample, seconds: float) -> bool:
        """The service has done something between the two looks, which are so far apart."""
        return (
            self.threads.keys() != earlier.threads.keys()
            or self.written != earlier.written
            or self.used_since(earlier) > BUSY * seconds * 1e9
        )


def look(root: int, recordings: Iterable[Path]) -> ActivitySample:
    """As it is now; a thread that ends meanwhile is not there."""
    threads = {}
    for pid in procfs.tree_of(root):
        for thread in procfs.threads_of(pid):
            try:
                used = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split()[0]
            except (OSError, IndexError):
                continue
            threads[pid, thread] = int(used)
    return ActivitySample(threads, max((_written(path) for path in recordings), default=0))


def _written(directory: Path) -> int:
    try:
        with os.scandir(directory) as entries:
            return max((entry.stat(follow_symlinks=False).st_mtime_ns for entry in entries), default=0)
    except OSError:
        return 0


class Activity:
    """Of one service.

    Args:
        looks: tells how it is now.
    """

    def __init__(self, looks: Callable[[], ActivitySample]) -> None:
        self._looks = looks
        self._last = looks()
        self._has_changed = False

    def has_changed(self, seconds: float) -> bool:
        """It has done something since the last commit; asked again after so many seconds."""
        now = self._looks()
        self._has_changed = self._has_changed or now.differs(self._last, seconds)
        self._last = now
        return self._has_changed

    def committed(self) -> None:
        """It stands still no more."""
        self._last, self._has_changed = self._looks(), False

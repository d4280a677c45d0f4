"""The kernel's list of file locks, ``/proc/locks``, without the wait that reading it begins with.

Who reads it takes the writer's side of a per-CPU semaphore (``file_rwsem``, fs/locks.c), which waits for a grace period of RCU:
6 to 16 ms, whatever else the machine does. For some 10 ms afterwards it is open to the next reader at once (kernel/rcu/sync.c).
CRIU reads it while it holds a tree, and so do we; so a thread of ours reads a byte of it every few milliseconds, beginning before.

One byte has the kernel list no more than a page of locks. Nothing depends on it but time.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

__all__ = ["LOCK_LIST", "OpenLockList"]

LOCK_LIST = Path("/proc/locks")
_PERIOD = 0.004  # [s]
_ENDS_WITHIN = 5.0  # [s]


class OpenLockList:
    """Keeps the list open to readers for the time of the block; its thread has ended behind it.

    Args:
        path: of the list; another for tests.
    """

    def __init__(self, path: Path = LOCK_LIST) -> None:
        self._path = path
        self._has_begun, self._ends = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="lock-list", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(_ENDS_WITHIN)

    def wait(self, limit: float) -> None:
        """Until it is open, at most so many seconds."""
        self._has_begun.wait(limit)

    def _work(self) -> None:
        try:
            # Unbuffered: a buffer would ask for more than the byte.
            with self._path.open("rb", buffering=0) as file:
                while True:
                    os.pread(file.fileno(), 1, 0)
                    self._has_begun.set()
                    if self._ends.wait(_PERIOD):
                        return
        except OSError:  # no such list here: then nobody waits for it either
            self._has_begun.set()

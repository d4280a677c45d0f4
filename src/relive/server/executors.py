"""Which server processes run tasks, and which of them are dead.

Each writes a row with its pid and start time, and its sign of life every second. In the same PID namespace of the same boot the
pid tells: a process that is there lives, however busy the machine is, and one that is not is dead at once. Elsewhere (a server in
a container that shares ``$RELIVE_HOME``), it is dead when its last sign of life is old. Signs are read on CLOCK_MONOTONIC, which
stands still while the machine sleeps and does not jump when its clock is set.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable

from relive.kernel.boot import boot_id
from relive.kernel.procfs import is_same_process, read_stat
from relive.server.task_store import ExecutorRow

__all__ = ["SILENCE_MOST", "dead_among", "this_process"]

SILENCE_MOST = 30.0  # [s] after which a process that cannot be looked at is taken for dead


def this_process() -> ExecutorRow:
    """A row for this process, of a new id."""
    stat = read_stat(os.getpid())
    assert stat is not None, "/proc shows this process"
    return ExecutorRow(
        id=uuid.uuid4().hex,
        boot=boot_id(),
        namespace=_namespace(),
        pid=stat.pid,
        start_ticks=stat.start_ticks,
        beat_ns=time.monotonic_ns(),
    )


def dead_among(rows: Iterable[ExecutorRow]) -> list[ExecutorRow]:
    """Those that are dead: see the module."""
    boot, namespace, now = boot_id(), _namespace(), time.monotonic_ns()

    def is_dead(row: ExecutorRow) -> bool:
        if row.boot != boot:
            return True  # of this host's files only: $RELIVE_HOME is one host's
        if row.namespace == namespace:
            return not is_same_process(row.pid, row.start_ticks)
        return now - row.beat_ns > SILENCE_MOST * 1e9

    return [row for row in rows if is_dead(row)]


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino

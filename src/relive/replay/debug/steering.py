"""Processes of a branch that stand still while a debugger is in one of them.

A server's parent ends a worker that says nothing for some seconds (gunicorn: 30), and one that stands in a line says nothing. Which
of several workers gets a request is the kernel's choice, as long as more than one of them takes what comes in at their socket.
The branch is thrown away afterwards: what stands still is never let go on.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from relive.kernel import procfs
from relive.replay.plan import ReplayPlan
from relive.replay.workers import process_numbered, sockets_of

__all__ = ["hold_parents", "leave_to", "stands_alone"]

_LISTENS_TCP = "0A"  # proc_net(5)
_LISTENS_UNIX = 0x10000  # __SO_ACCEPTCON


def hold_parents(root: int, number: int) -> None:
    """Have all parents of the branch's process ``number`` stand still, up to the service's first one."""
    worker = process_numbered(procfs.tree_of(root), number)
    if worker is not None:
        _hold(_parents(root, worker))


def leave_to(root: int, number: int) -> None:
    """Leave what comes in to the process ``number``: its parents stand still, and the others that listen at a socket of it.

    Not its own children, which may work for it. Where each worker has a socket of its own at the port (SO_REUSEPORT), the kernel
    chooses as before.
    """
    worker = process_numbered(procfs.tree_of(root), number)
    if worker is None:
        return
    shared = sockets_of(worker) & _listening(worker)
    beside = set(procfs.tree_of(root)) - set(procfs.tree_of(worker))
    _hold({*_parents(root, worker), *(pid for pid in beside if sockets_of(pid) & shared)})


def stands_alone(plan: ReplayPlan) -> bool:
    """All other requests are answered before the one that matters is sent: who stands still then has none to answer."""
    subject = next((one for one in plan.steps if one.exchange.number == plan.subject), None)
    others = {one.exchange.number for one in plan.steps} - {plan.subject}
    return subject is not None and others <= subject.waits_for


def _parents(root: int, pid: int) -> list[int]:
    found = []
    while pid != root:
        stat = procfs.read_stat(pid)
        if stat is None or stat.parent <= 1:
            break
        pid = stat.parent
        found.append(pid)
    return found


def _hold(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)


def _listening(pid: int) -> set[str]:
    """Inodes of the sockets that listen in its network namespace."""
    tcp = [*_rows(pid, "tcp"), *_rows(pid, "tcp6")]
    found = {words[9] for words in tcp if words[3] == _LISTENS_TCP}
    return found | {words[6] for words in _rows(pid, "unix") if int(words[3], 16) & _LISTENS_UNIX}


def _rows(pid: int, name: str) -> list[list[str]]:
    with contextlib.suppress(OSError):
        return [line.split() for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]]
    return []

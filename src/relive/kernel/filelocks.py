"""POSIX locks that processes hold on files, from /proc/locks and /proc/PID/fdinfo (proc_locks(5), proc_pid_fdinfo(5))."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from relive.kernel.lock_list import LOCK_LIST

__all__ = ["PosixLock", "held_posix_locks"]

_HELD: Final = re.compile(rb"^\d+: POSIX +\S+ +\S+ +(\d+) ", re.MULTILINE)
_OF_DESCRIPTOR: Final = re.compile(
    rb"^lock:\s+\d+: POSIX +\S+ +(READ|WRITE) +\d+ +(\S+) +(\d+) +(\d+|EOF)$", re.MULTILINE
)


class PosixLock(NamedTuple):
    """One lock.

    Attributes:
        pid: its owner, as the host sees it.
        descriptor: one of the owner's that leads to the file.
        kind: F_RDLCK or F_WRLCK.
        start: first byte.
        length: [bytes]; 0: to the end, wherever that is.
    """

    pid: int
    descriptor: int
    kind: int
    start: int
    length: int


def held_posix_locks(pids: Iterable[int]) -> list[PosixLock]:
    """Those that the given processes hold. Who holds none costs nothing, so this may be asked while they stand still."""
    owners = {int(pid) for pid in _HELD.findall(_read(LOCK_LIST))}
    return [lock for pid in pids if pid in owners for lock in _of_process(pid)]


def _of_process(pid: int) -> list[PosixLock]:
    found: dict[tuple[bytes, ...], PosixLock] = {}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(f"/proc/{pid}/fdinfo"), key=int):
            for kind, file, first, last in _OF_DESCRIPTOR.findall(_read(Path(f"/proc/{pid}/fdinfo/{name}"))):
                length = 0 if last == b"EOF" else int(last) + 1 - int(first)
                lock_kind = fcntl.F_RDLCK if kind == b"READ" else fcntl.F_WRLCK
                lock = PosixLock(pid, int(name), lock_kind, int(first), length)
                # A duplicate of the descriptor tells it again.
                found.setdefault((kind, file, first, last), lock)
    return list(found.values())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""

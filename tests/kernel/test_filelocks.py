"""POSIX locks of processes, as /proc tells them."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from relive.kernel.filelocks import PosixLock, held_posix_locks

_OFD_SETLK = 37


def _lock(kind: int, start: int, length: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)


def test_ranges_are_told_with_one_descriptor_each(tmp_path: Path) -> None:
    me = os.getpid()
    with (tmp_path / "file").open("w+b") as file:
        twin = os.dup(file.fileno())
        fcntl.fcntl(twin, fcntl.F_SETLK, _lock(fcntl.F_RDLCK, 128, 1))
        fcntl.fcntl(file, fcntl.F_SETLK, _lock(fcntl.F_WRLCK, 1 << 40, 0))
        held = held_posix_locks([me])
        assert PosixLock(me, file.fileno(), fcntl.F_RDLCK, 128, 1) in held
        assert PosixLock(me, file.fileno(), fcntl.F_WRLCK, 1 << 40, 0) in held
        assert twin not in {lock.descriptor for lock in held}
        os.close(twin)


def test_only_posix_locks_of_the_processes_asked_for_are_told(tmp_path: Path) -> None:
    ours = held_posix_locks([os.getpid()])
    with (tmp_path / "file").open("w+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.fcntl(file, _OFD_SETLK, _lock(fcntl.F_WRLCK, 0, 1))
        assert held_posix_locks([os.getpid()]) == ours
        fcntl.fcntl(file, fcntl.F_SETLK, _lock(fcntl.F_RDLCK, 5, 1))
        assert held_posix_locks([os.getppid()]) != held_posix_locks([os.getpid()]) != ours
        assert held_posix_locks([]) == []


def test_a_process_that_is_gone_holds_nothing() -> None:
    assert held_posix_locks([1 << 22]) == []

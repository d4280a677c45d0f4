"""Locks on files, and which thread waits for what another one holds: locks on files, and mutexes of the C library."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterator, Sequence, Set
from dataclasses import dataclass

from relive.images import criu_images_pb2 as pb
from relive.inspection.state import FileLock, Waiting
from relive.inspection.system_calls import FCNTL, FLOCK, FUTEX, call_number

__all__ = ["Stand", "file_locks", "mutex_owner", "waiting_threads"]

_KINDS = {1: "posix", 2: "flock", 4: "open-file", 8: "lease"}
_MODES = {0: "read", 1: "write"}
_WAITS = frozenset({7, 38})  # F_SETLKW, F_OFD_SETLKW
# FUTEX_WAIT, FUTEX_WAIT_BITSET; 128 is FUTEX_PRIVATE_FLAG, 256 FUTEX_CLOCK_REALTIME.
_FUTEX_WAITS = frozenset({0, 9})
_FUTEX_COMMAND = 0x7F
_MUTEX = struct.Struct("<IIi")  # __lock, __count, __owner of glibc's pthread_mutex_t
_CONTENDED = 2


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a thread stood; ``read`` reads its memory."""

    pid: int
    tid: int
    registers: pb.UserX86RegsEntry
    read: Callable[[int, int], bytes | None]


def file_locks(entries: Sequence[pb.FileLockEntry], path_of: Callable[[int, int], str]) -> list[FileLock]:
    """``path_of``: of a process's descriptor."""
    return [
        FileLock(
            pid=one.pid,
            fd=one.fd,
            path=path_of(one.pid, one.fd),
            kind=next((name for bit, name in _KINDS.items() if one.flag & bit), str(one.flag)),
            mode=_MODES.get(one.type & 3, str(one.type)),
            start=one.start,
            length=one.len,
        )
        for one in entries
    ]


def waiting_threads(
    stands: Sequence[Stand], locks: Sequence[FileLock], path_of: Callable[[int, int], str]
) -> list[Waiting]:
    """Who waits for whom, in the order of ``stands``."""
    threads: dict[int, set[int]] = {}
    for one in stands:
        threads.setdefault(one.pid, set()).add(one.tid)
    return [found for one in stands for found in _waits(one, locks, path_of, threads[one.pid])]


def _waits(
    stand: Stand, locks: Sequence[FileLock], path_of: Callable[[int, int], str], threads: Set[int]
) -> Iterator[Waiting]:
    number, registers = call_number(stand.registers), stand.registers
    if number == FLOCK or (number == FCNTL and registers.si in _WAITS):
        path = path_of(stand.pid, registers.di & 0xFFFF_FFFF)
        for lock in locks:
            if (
                path
                and lock.path == path
                and (number == FLOCK) == (lock.kind == "flock")
                and lock.pid != stand.pid
            ):
                yield Waiting(
                    pid=stand.pid, tid=stand.tid, what=f"lock on {path}", holder=lock.pid, holder_thread=None
                )
    elif number == FUTEX and registers.si & _FUTEX_COMMAND in _FUTEX_WAITS:
        owner = mutex_owner(stand.read(registers.di, _MUTEX.size), threads - {stand.tid})
        if owner is not None:
            what = f"mutex at {registers.di:#x}"
            yield Waiting(pid=stand.pid, tid=stand.tid, what=what, holder=stand.pid, holder_thread=owner)


def mutex_owner(data: bytes | None, threads: Collection[int]) -> int | None:
    """The thread that holds a mutex with these first bytes; None: it is none, or nobody of ``threads`` holds it.

    Any word may be waited for. It is taken for glibc's mutex where it says "locked, and others wait" and a thread of this process
    stands where the owner stands.
    """
    if data is None:
        return None
    lock, _, owner = _MUTEX.unpack(data)
    return owner if lock == _CONTENDED and owner in threads else None

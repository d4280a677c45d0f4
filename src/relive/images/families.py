"""Families of sockets that restored processes may make: those of which a network namespace is the border.

Others lead past it: AF_VSOCK reaches the hypervisor of a virtual machine, and on its host every machine, from any namespace
(vsock(7)); Bluetooth and others act on devices of the whole machine. A seccomp filter (seccomp(2)) is put behind those that the
commit's threads have: ``socket`` of such a family fails with EAFNOSUPPORT, as on a kernel without it, and io_uring, which could
make sockets without that call, with ENOSYS.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from relive.images import criu_images_pb2 as pb
from relive.images.imagefile import read_entries, write_entries

__all__ = ["ALLOWED", "SOCKET_FILTER", "limit_sockets"]

ALLOWED = (
    socket.AF_UNIX,
    socket.AF_INET,
    socket.AF_INET6,
    socket.AF_NETLINK,
    socket.AF_PACKET,
    socket.AF_ALG,  # the kernel's ciphers: it goes nowhere
)
_FILTER_MODE = 2  # SECCOMP_MODE_FILTER
_TO_ALL_THREADS = 1  # SECCOMP_FILTER_FLAG_TSYNC
_HEADER = struct.pack("<II", 0x54564319, 0x64413049)  # of seccomp.img
_ARCHITECTURE_64 = 0xC000003E  # AUDIT_ARCH_X86_64
_X32_CALLS = 0x40000000
_SOCKET_64, _SOCKET_32, _SOCKETCALL_32 = 41, 359, 102
_IO_URING_FIRST, _IO_URING_LAST = 425, 427  # in all tables
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # places in struct seccomp_data
_LOAD, _EQUAL, _AT_LEAST, _MORE, _RETURN = 0x20, 0x15, 0x35, 0x25, 0x06
_FAIL, _ALLOW = 0x00050000, 0x7FFF0000


class _Step(NamedTuple):
    """An instruction; jumps go to the step of that name, or to the next one."""

    code: int
    value: int
    name: str = ""
    if_so: str = ""
    if_not: str = ""


def _assembled(steps: list[_Step]) -> bytes:
    """struct sock_filter[]: (u16 code, u8 jump if true, u8 jump if not, u32 value)."""
    places = {step.name: place for place, step in enumerate(steps) if step.name}

    def jump(place: int, name: str) -> int:
        return places[name] - place - 1 if name else 0

    return b"".join(
        struct.pack("<HBBI", step.code, jump(place, step.if_so), jump(place, step.if_not), step.value)
        for place, step in enumerate(steps)
    )


SOCKET_FILTER = _assembled(
    [
        _Step(_LOAD, _ARCHITECTURE),
        _Step(_EQUAL, _ARCHITECTURE_64, if_not="32 bits"),
        _Step(_LOAD, _NUMBER),
        _Step(_AT_LEAST, _X32_CALLS, if_so="no such call"),
        _Step(_EQUAL, _SOCKET_64, if_so="socket", if_not="ring"),
        _Step(_LOAD, _NUMBER, name="32 bits"),
        _Step(_EQUAL, _SOCKET_32, if_so="socket"),
        # Its arguments lie in memory, where a filter does not see them; libraries of today do not use it.
        _Step(_EQUAL, _SOCKETCALL_32, if_so="no such family"),
        _Step(_AT_LEAST, _IO_URING_FIRST, name="ring", if_not="allowed"),
        _Step(_MORE, _IO_URING_LAST, if_so="allowed", if_not="no such call"),
        _Step(_LOAD, _FIRST_ARGUMENT, name="socket"),
        *(_Step(_EQUAL, family, if_so="allowed") for family in ALLOWED),
        _Step(_RETURN, _FAIL | errno.EAFNOSUPPORT, name="no such family"),
        _Step(_RETURN, _FAIL | errno.ENOSYS, name="no such call"),
        _Step(_RETURN, _ALLOW, name="allowed"),
    ]
)


def limit_sockets(images: Path, processes: Iterable[pb.PstreeEntry]) -> None:
    """Put the filter behind those of every thread of a commit laid out in ``images``.

    Raises:
        ObjectCorrupt: an image is damaged.
    """
    path = images / "seccomp.img"
    if not path.exists():
        path.write_bytes(_HEADER)
    found = read_entries(path, pb.SeccompEntry)
    filters = found[0] if found else pb.SeccompEntry()
    limiting = _Limiting(filters)
    for process in processes:
        for thread in process.threads or [process.pid]:
            core = images / f"core-{thread}.img"
            if not core.exists():
                continue
            entries = read_entries(core, pb.CoreEntry)
            limited = [limiting.limit(entry, is_leader=thread == process.pid) for entry in entries]
            if any(limited):
                write_entries(core, entries)
    write_entries(path, [filters])


class _Limiting:
    """Threads that had the same filters share the new one too.

    Where all threads of a process have the same filters, CRIU writes them down for the first thread only, and has it give them to
    all (SECCOMP_FILTER_FLAG_TSYNC). So the others must be left as they are: with a filter of their own, the kernel would give them
    none, and CRIU would not notice (seccomp(2) returns the number of the thread that stood in the way).
    """

    def __init__(self, filters: pb.SeccompEntry) -> None:
        self._filters = filters
        self._last_of: dict[int | None, int] = {}  # the new one's place by that of the last one before
        self._is_shared = False

    def limit(self, entry: pb.CoreEntry, *, is_leader: bool) -> bool:
        """Whether the thread's entry has changed; the first thread of a process comes before its others."""
        thread = entry.thread_core
        if not entry.HasField("thread_core") or thread.seccomp_mode not in (0, _FILTER_MODE):
            return False  # a dead process; a thread that may do nothing but read and write
        is_filtered = thread.seccomp_mode == _FILTER_MODE
        # Without the mode the number means nothing, though CRIU writes one.
        before = thread.seccomp_filter if is_filtered and thread.HasField("seccomp_filter") else None
        if is_leader:
            self._is_shared = self._gives_to_all(before)
        elif self._is_shared:
            return False
        if before not in self._last_of:
            self._last_of[before] = len(self._filters.seccomp_filters)
            flags = _TO_ALL_THREADS if self._is_shared else None
            self._filters.seccomp_filters.append(
                pb.SeccompFilter(filter=SOCKET_FILTER, prev=before, flags=flags)
            )
        thread.seccomp_mode, thread.seccomp_filter = _FILTER_MODE, self._last_of[before]
        return True

    def _gives_to_all(self, last: int | None) -> bool:
        found, steps = self._filters.seccomp_filters, 0
        while last is not None and last < len(found) and steps <= len(found):
            if found[last].flags & _TO_ALL_THREADS:
                return True
            last, steps = (found[last].prev if found[last].HasField("prev") else None), steps + 1
        return False

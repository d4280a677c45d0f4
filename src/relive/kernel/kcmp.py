"""Whether a descriptor of a process is what an epoll of it waits for (kcmp(2)): the kernel compares, nothing is touched."""

from __future__ import annotations

import ctypes

from relive.kernel import libc

__all__ = ["is_epoll_target"]

_SYS_KCMP = 312  # x86-64
_EPOLL_TFD = 7


class _Slot(ctypes.Structure):
    """struct kcmp_epoll_slot: the epoll, the number it was given, and which of several with that number."""

    _fields_ = (("efd", ctypes.c_uint32), ("tfd", ctypes.c_uint32), ("toff", ctypes.c_uint32))


def is_epoll_target(pid: int, descriptor: int, epoll: int, number: int) -> bool:
    """``descriptor`` is the open file that ``epoll`` was given as ``number``; all of the process ``pid``.

    Raises:
        OSError: one of them is gone, or the kernel lacks CONFIG_KCMP.
    """
    slot = _Slot(epoll, number, 0)
    return libc.syscall(_SYS_KCMP, pid, pid, _EPOLL_TFD, descriptor, ctypes.addressof(slot)) == 0

"""Handles of processes (pidfd_open(2)): each means one process, also after its number was given to another.

A number alone is never signalled: between the moment at which somebody read it and the signal its process may have ended, and the
number may be a stranger's. So a handle is opened first, and what is known of the process is compared while the handle holds it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct

from relive.kernel import libc, procfs
from relive.kernel.namespaces import Namespace, namespace_id

__all__ = ["copy_descriptor", "exit_status", "has_ended", "open_member", "open_process", "send_signal"]

_GETFD = 438  # pidfd_getfd(2)

# linux/pidfd.h: struct pidfd_info as of its first version, without what stands between.
_INFO = struct.Struct("=Q52xi")
_GET_INFO = 0xC000FF0B | _INFO.size << 16  # _IOWR(0xFF, 11, struct pidfd_info)
_INFO_EXIT = 1 << 3


def open_process(pid: int, start_ticks: int | None = None) -> int | None:
    """A handle of a process that is alive, which the caller closes; None where there is none.

    Args:
        start_ticks: when it started, in clock ticks after boot (``procfs.read_stat``): one that started at another time is a
            stranger. None: the number is known to be right, such as that of a child that was not waited for.
    """
    if pid <= 0:
        return None
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return None
    if start_ticks is not None and not procfs.is_same_process(pid, start_ticks):
        os.close(handle)
        return None
    return handle


def open_member(pid: int, first: int) -> int | None:
    """A handle of a process if it lives in the PID namespace whose process 1 is ``first``, or in one within; else None.

    The caller closes it.
    """
    handle = open_process(pid)
    if handle is None:
        return None
    try:
        is_member = namespace_id(pid, Namespace.PID) == namespace_id(first, Namespace.PID) or _descends(
            pid, first
        )
    except OSError:
        is_member = False
    # What was compared was this process's only if it has not ended meanwhile.
    if is_member and not has_ended(handle):
        return handle
    os.close(handle)
    return None


def _descends(pid: int, first: int) -> bool:
    """It was forked by that process or its descendants, mostly into a namespace of their own."""
    while pid > 1:
        stat = procfs.read_stat(pid)
        pid = stat.parent if stat is not None else 0
        if pid == first:
            return True
    return False


def copy_descriptor(handle: int, number: int) -> int:
    """A descriptor of our own of what a process has open under that number (Linux 5.6), which the caller closes; raises OSError."""
    return libc.syscall(_GETFD, handle, number, 0)


def send_signal(handle: int, number: int) -> bool:
    """Signal a process; False where it has ended."""
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    return True


def has_ended(handle: int, wait_s: float = 0) -> bool:
    """The process has ended (a zombie has), or does within so many seconds."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(wait_s * 1000))


def exit_status(handle: int) -> int | None:
    """The raw wait status (``os.waitstatus_to_exitcode``) of a process that has ended and whose parent has taken it.

    None where it has not, and where the kernel is older than Linux 6.15. The handle must have been opened before the end.
    """
    info = bytearray(_INFO.size)
    _INFO.pack_into(info, 0, _INFO_EXIT, 0)
    try:
        fcntl.ioctl(handle, _GET_INFO, info)
    except OSError:
        return None
    mask, status = _INFO.unpack(info)
    return int(status) if mask & _INFO_EXIT else None

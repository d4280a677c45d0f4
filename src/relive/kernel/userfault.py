"""userfaultfd(2): memory whose missing pages somebody else fills in, while the processes run (ioctl_userfaultfd(2)).

Numbers are those of linux/userfaultfd.h on x86-64; addresses are told in pages of 4096 bytes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from dataclasses import dataclass
from enum import IntEnum

from relive.errors import HostIncapable
from relive.kernel import libc

__all__ = ["Copied", "FaultEvent", "FaultEventKind", "UserFault", "check_userfault", "notes_writes"]

_SHIFT = 12
_PAGE = 1 << _SHIFT
_SYS_USERFAULTFD = 323
_API = 0xAA
_UFFDIO_API, _UFFDIO_WAKE, _UFFDIO_COPY, _UFFDIO_ZEROPAGE = 0xC018AA3F, 0x8010AA02, 0xC028AA03, 0xC020AA04
_FORK, _REMAP, _REMOVE, _UNMAP = 1 << 1, 1 << 2, 1 << 3, 1 << 6
_NOTES_WRITES = 1 << 0 | 1 << 13 | 1 << 15  # PAGEFAULT_FLAG_WP, WP_UNPOPULATED, WP_ASYNC
_USER_MODE_ONLY = 1
_MESSAGE = struct.Struct("<B7x3Q")  # struct uffd_msg: the kind of event, then up to three words of it
_AT_ONCE = 64
_EXPECTED = (errno.EAGAIN, errno.EEXIST, errno.ENOENT, errno.ESRCH)


class FaultEventKind(IntEnum):
    """UFFD_EVENT_*."""

    FAULT = 0x12
    FORK = 0x13
    REMAP = 0x14
    REMOVE = 0x15
    UNMAP = 0x16


@dataclass(frozen=True, slots=True)
class FaultEvent:
    """What happened in the memory.

    Attributes:
        first: FAULT: the page that a thread waits for. REMAP, REMOVE, UNMAP: the first page concerned.
        pages: how many pages are concerned.
        destination: REMAP: where the first page is now.
        child: FORK: the descriptor of the child's memory; the receiver closes it.
    """

    kind: FaultEventKind
    first: int = 0
    pages: int = 1
    destination: int = 0
    child: int = -1


@dataclass(frozen=True, slots=True)
class Copied:
    """What became of pages to fill in.

    Attributes:
        pages: how many are in place now.
        refusal: why no more: 0 (all are), EAGAIN (an event has to be read first, or the process has not gone on yet since
            one was), EEXIST (the next page is there already), ENOENT (the pages do not lie in one mapping of this memory),
            ESRCH (the process is gone).
    """

    pages: int
    refusal: int


class _Copy(ctypes.Structure):
    _fields_ = (
        ("destination", ctypes.c_uint64),
        ("source", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("copied", ctypes.c_int64),
    )


class _Zero(ctypes.Structure):
    _fields_ = (
        ("first", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("zeroed", ctypes.c_int64),
    )


class _Range(ctypes.Structure):
    _fields_ = (("first", ctypes.c_uint64), ("length", ctypes.c_uint64))


class UserFault:
    """One open userfaultfd, that does not block (O_NONBLOCK). Use it from one thread."""

    def __init__(self, descriptor: int) -> None:
        """Takes the descriptor over."""
        self.descriptor = descriptor

    def close(self) -> None:
        """Give it up. When the last descriptor is closed, threads that wait go on, and missing pages become zeros."""
        os.close(self.descriptor)

    def events(self) -> list[FaultEvent]:
        """What has happened since, in order; none if nothing has. A thread that caused another event than a fault goes on.

        Raises:
            OSError: it cannot be read.
        """
        try:
            data = os.read(self.descriptor, _MESSAGE.size * _AT_ONCE)
        except BlockingIOError:
            return []
        return [_event(*words) for words in _MESSAGE.iter_unpack(data)]

    def copy(self, first: int, address: int, pages: int) -> Copied:
        """Fill pages in from the caller's memory, and wake who waits for them.

        Args:
            address: of the content in the caller's memory; ``pages * 4096`` bytes that stay there during the call.

        Raises:
            OSError: another refusal than those of ``Copied``, such as ENOMEM.
        """
        order = _Copy(first << _SHIFT, address, pages << _SHIFT, 0, 0)
        refusal = self._order(_UFFDIO_COPY, order)
        return Copied(max(0, order.copied) >> _SHIFT, refusal)

    def zero(self, page: int) -> int:
        """Fill one page in with zeros, and wake who waits for it; returns 0 or the refusal, as ``Copied`` has it.

        Raises:
            OSError: another refusal.
        """
        return self._order(_UFFDIO_ZEROPAGE, _Zero(page << _SHIFT, _PAGE, 0, 0))

    def wake(self, first: int, pages: int) -> None:
        """Let who waits for these pages look again; they need not exist."""
        self._order(_UFFDIO_WAKE, _Range(first << _SHIFT, pages << _SHIFT))

    def _order(self, number: int, order: ctypes.Structure) -> int:
        try:
            libc.call("ioctl", self.descriptor, ctypes.c_ulong(number), ctypes.byref(order))
        except OSError as error:
            if error.errno not in _EXPECTED:
                raise
            return error.errno
        return 0


def _event(kind: int, one: int, two: int, three: int) -> FaultEvent:
    match FaultEventKind(kind):
        case FaultEventKind.FAULT:  # flags, address
            return FaultEvent(FaultEventKind.FAULT, two >> _SHIFT)
        case FaultEventKind.FORK:  # a descriptor in 32 bits
            return FaultEvent(FaultEventKind.FORK, child=one & 0xFFFF_FFFF)
        case FaultEventKind.REMAP:  # from, to, length
            return FaultEvent(FaultEventKind.REMAP, one >> _SHIFT, three >> _SHIFT, two >> _SHIFT)
        case removed:  # start, end
            return FaultEvent(removed, one >> _SHIFT, (two - one) >> _SHIFT)


def check_userfault() -> None:
    """Raises HostIncapable where this host cannot fill in the memory of processes that fork, move and free it."""
    try:
        descriptor = libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _incapable(f"userfaultfd: {error.strerror}") from error
    try:
        asked = ctypes.create_string_buffer(struct.pack("3Q", _API, _FORK | _REMAP | _REMOVE | _UNMAP, 0))
        libc.call("ioctl", descriptor, ctypes.c_ulong(_UFFDIO_API), asked)
    except OSError as error:
        raise _incapable(
            f"its userfaultfd tells nothing of fork(), mremap() and munmap(): {error}"
        ) from error
    finally:
        os.close(descriptor)


def notes_writes() -> bool:
    """Whether it can note which pages are written without anybody being waited for (Linux 6.7).

    Raises:
        OSError: there is none, or the caller may not make one.
    """
    descriptor = libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
    try:
        asked = ctypes.create_string_buffer(struct.pack("3Q", _API, _NOTES_WRITES, 0))
        libc.call("ioctl", descriptor, ctypes.c_ulong(_UFFDIO_API), asked)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    finally:
        os.close(descriptor)
    return True


def _incapable(cause: str) -> HostIncapable:
    return HostIncapable(
        "this host cannot bring memory in while a branch runs",
        cause=cause,
        remedy="restore without --lazy; `relive doctor` tells more about userfaultfd",
    )

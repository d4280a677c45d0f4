"""Seccomp filters: one that hides io_uring from a service, and such as ask a supervisor before certain calls.

They are of one thread and all that it starts, and CRIU dumps them (seccomp(2)). They must be put on with CAP_SYS_ADMIN, so
before privileges are dropped: without it they would need no_new_privs, which changes what setuid programs do.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from relive.kernel import libc

__all__ = ["ask_supervisor", "hide_io_uring"]

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_SECCOMP, _SET_MODE_FILTER = 317, 1  # the system call, and its operation
_NEW_LISTENER, _WAIT_KILLABLE_RECV = 8, 32  # Linux 5.0, 5.19
_STEP = 8  # [bytes] of struct sock_filter
_IO_URING_SETUP, _IO_URING_ENTER, _IO_URING_REGISTER = 425, 426, 427
_RET_ERRNO, _RET_ALLOW = 0x00050000, 0x7FFF0000
_LOAD_NUMBER, _JUMP_IF_GREATER_OR_EQUAL, _JUMP_IF_GREATER, _RETURN = 0x20, 0x35, 0x25, 0x06


def hide_io_uring() -> None:
    """Make io_uring_setup, _enter and _register fail with ENOSYS in this process and all it starts.

    The service sees a kernel without io_uring, which every user of it has to cope with: uvloop and libuv fall back to epoll. CRIU
    cannot dump a ring.

    Raises:
        OSError: EACCES without the capability; EINVAL on a kernel without seccomp filters.
    """
    # x86-64 numbers; a 32-bit program makes other calls by these numbers, none of which are in use on i386.
    instructions = (
        (_LOAD_NUMBER, 0, 0, 0),
        (_JUMP_IF_GREATER_OR_EQUAL, 0, 2, _IO_URING_SETUP),
        (_JUMP_IF_GREATER, 1, 0, _IO_URING_REGISTER),
        (_RETURN, 0, 0, _RET_ERRNO | errno.ENOSYS),
        (_RETURN, 0, 0, _RET_ALLOW),
    )
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    _program_held, header = _program(code)
    libc.call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0)


def ask_supervisor(code: bytes) -> int:
    """Have this thread and all it starts ask before the calls that a filter names; returns the listener, a descriptor.

    Whoever has the listener answers (seccomp_unotify(2)); until then each such call waits, this thread's too.

    Args:
        code: struct sock_filter[], with returns of USER_NOTIF.

    Raises:
        OSError: EBUSY where it is under such a listener already; EINVAL before Linux 5.19; EACCES without the capability.
    """
    _program_held, header = _program(code)
    flags = _NEW_LISTENER | _WAIT_KILLABLE_RECV
    return libc.syscall(_SECCOMP, _SET_MODE_FILTER, flags, ctypes.addressof(header))


def _program(code: bytes) -> tuple[ctypes.Array[ctypes.c_char], ctypes.Array[ctypes.c_char]]:
    """The instructions in memory, and struct sock_fprog that points to them; both must live until the call."""
    program = ctypes.create_string_buffer(code, len(code))
    pointer = struct.pack("HxxxxxxQ", len(code) // _STEP, ctypes.addressof(program))
    return program, ctypes.create_string_buffer(pointer, len(pointer))

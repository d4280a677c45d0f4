"""A seccomp filter that hides io_uring from a service, since CRIU cannot dump a ring.

The service sees a kernel without io_uring (ENOSYS), which every user of it has to cope with: uvloop and libuv fall
back to epoll. The filter is inherited by children and is itself part of a commit (seccomp(2)).
"""

from __future__ import annotations

import ctypes
import errno
import struct

from relive.kernel import libc

__all__ = ["hide_io_uring"]

_PR_SET_SECCOMP = 22
_SECCOMP_MODE_FILTER = 2
_IO_URING_SETUP, _IO_URING_ENTER, _IO_URING_REGISTER = 425, 426, 427
_RET_ERRNO, _RET_ALLOW = 0x00050000, 0x7FFF0000
_LOAD_NUMBER, _JUMP_IF_GREATER_OR_EQUAL, _JUMP_IF_GREATER, _RETURN = 0x20, 0x35, 0x25, 0x06


def hide_io_uring() -> None:
    """Make io_uring_setup, _enter and _register fail with ENOSYS in this process and all it starts.

    Must be called with CAP_SYS_ADMIN, so before dropping privileges: without it the filter would need
    no_new_privs, which changes what setuid programs do.

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
    program = ctypes.create_string_buffer(code)
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(program))
    )
    libc.call("prctl", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0)

"""One door to libc: system calls that Python's ``os`` does not offer on 3.11, with errno turned into OSError."""

from __future__ import annotations

import ctypes
import os

__all__ = ["call", "syscall"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def call(name: str, *args: object) -> int:
    """Call a libc function that returns -1 on failure.

    Arguments must be int, bytes, None or ctypes values. Threads: errno is per thread, so this may be called from any.

    Raises:
        OSError: the function returned a negative number; errno is the function's.
    """
    result: int = getattr(_libc, name)(*args)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def syscall(number: int, *args: int | None) -> int:
    """Call a raw system call (x86-64 number) whose arguments are integers or pointers.

    Raises:
        OSError: the call failed.
    """
    words = [ctypes.c_long(number), *(ctypes.c_long(0 if arg is None else arg) for arg in args)]
    result: int = _libc.syscall(*words)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"system call {number}: {os.strerror(error)}")
    return result

"""A program under a seccomp filter that refuses one system call, as a container may have it.

As a program: ``call_filter.py NUMBER SECOND ERRNO COMMAND``.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from typing import NamedTuple

__all__ = ["PAGEMAP_SCAN", "USERFAULTFD", "Refused", "under_filter"]

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _SECOND_ARGUMENT_AT = 0, 24  # in struct seccomp_data
_ERRNO, _ALLOW = 0x00050000, 0x7FFF0000
_PR_SET_SECCOMP, _FILTER = 22, 2


class Refused(NamedTuple):
    """A call on x86-64, with this second argument; None: with any."""

    number: int
    second: int | None = None


USERFAULTFD = Refused(323)
PAGEMAP_SCAN = Refused(16, 0xC0606610)  # of ioctl(2)


def under_filter(refused: Refused, error: int) -> list[str]:
    """Words before those of a command."""
    second = "any" if refused.second is None else str(refused.second)
    return [sys.executable, __file__, str(refused.number), second, str(error)]


def _main(number: str, second: str, error: str, *command: str) -> None:
    tests = [(_NUMBER_AT, int(number))]
    if second != "any":
        tests.append((_SECOND_ARGUMENT_AT, int(second)))
    code = []
    for at, (offset, value) in enumerate(tests):
        to_the_end = 2 * (len(tests) - at) - 1
        code += [(_LOAD, 0, 0, offset), (_JUMP_IF_EQUAL, 0, to_the_end, value)]
    code += [(_RETURN, 0, 0, _ERRNO | int(error)), (_RETURN, 0, 0, _ALLOW)]
    held = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    program = ctypes.create_string_buffer(held, len(held))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_SECCOMP, _FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    os.execvp(command[0], command)


if __name__ == "__main__":
    _main(*sys.argv[1:])

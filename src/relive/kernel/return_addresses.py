"""Which calls led to where a thread stands, without tables to unwind by: the words of its stack that point into code of files.

These are the return addresses, and some left there by earlier calls. A process that was restored and did the same has the same
ones, at the same addresses. Code that a runtime made for itself is left out: it need not lie where it had lain.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path

from relive.kernel import procfs

__all__ = ["callers_of"]

_MOST = 2048  # [bytes] of the stack that are looked at; `abort` alone takes some 500
_WORD = 8


def callers_of(pid: int, thread: int) -> list[int] | None:
    """Those words, the latest call first, of a thread that is stopped; None where that cannot be known (any more)."""
    try:
        registers = procfs.registers_of(pid, thread)
        if registers is None:
            return None
        return _pointing(_stack(pid, registers[1]), _code(pid))
    except OSError:  # it has no memory any more, or we may not look
        return None


def _stack(pid: int, begin: int) -> bytes:
    end = next((one.end for one in procfs.read_maps(pid) if one.start <= begin < one.end), begin)
    memory = os.open(Path(f"/proc/{pid}/mem"), os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(memory, min(_MOST, end - begin), begin)
    finally:
        os.close(memory)


def _code(pid: int) -> list[tuple[int, int]]:
    """Beginning and end of all mappings of code that files hold, lowest address first."""
    return [
        (one.start, one.end)
        for one in procfs.read_maps(pid)
        if "x" in one.permissions and one.path.startswith("/")
    ]


def _pointing(stack: bytes, code: list[tuple[int, int]]) -> list[int]:
    begins = [begin for begin, _ in code]
    words = (
        int.from_bytes(stack[at : at + _WORD], "little") for at in range(0, len(stack) - _WORD + 1, _WORD)
    )
    found = []
    for word in words:
        at = bisect_right(begins, word) - 1
        if at >= 0 and word < code[at][1]:
            found.append(word)
    return found

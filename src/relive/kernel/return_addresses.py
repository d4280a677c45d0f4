"""Which calls led to where a thread stands: return addresses on its stack, as far as its modules tell how to find them.

Where nothing tells how to find the first one, the latest three words of the stack that point into code of files have to do.
Further up such words may be left there by earlier calls, and differ from one run to the next.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from relive.kernel import procfs
from relive.kernel.procfs import Mapping
from relive.kernel.unwinding import Tables, return_addresses

__all__ = ["callers_of"]

_MOST = 2048  # [bytes] of the stack that are looked at; `abort` alone takes some 500
_WORDS = 3
_WORD = 8


def callers_of(pid: int, thread: int, kept: Sequence[int] = ()) -> list[int] | None:
    """Those addresses, the latest call first, of a thread that is stopped; None where that cannot be known (any more).

    A process that was restored and did the same has the same ones.

    Args:
        kept: registers of the thread, see ``unwinding.return_addresses``.
    """
    try:
        registers = procfs.registers_of(pid, thread)
        if registers is None:
            return None
        memory = os.open(Path(f"/proc/{pid}/mem"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # it has no memory any more, or we may not look
        return None
    try:
        maps = list(procfs.read_maps(pid))

        def read(address: int, length: int) -> bytes:
            return os.pread(memory, length, address)

        found = return_addresses(Tables(maps, read), read, *registers, kept)
        return found or _pointing(_stack(maps, memory, registers[1]), maps)[:_WORDS] or None
    except OSError:
        return None
    finally:
        os.close(memory)


def _stack(maps: list[Mapping], memory: int, begin: int) -> bytes:
    end = next((one.end for one in maps if one.start <= begin < one.end), begin)
    return os.pread(memory, min(_MOST, end - begin), begin)


def _pointing(stack: bytes, maps: list[Mapping]) -> list[int]:
    # Code that a runtime made for itself need not lie where it had lain.
    code = [(one.start, one.end) for one in maps if "x" in one.permissions and one.path.startswith("/")]
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

"""What /proc shows of a process's own words and environment (proc(5), prctl(2) PR_SET_MM_MAP), set anew."""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from relive.kernel import libc

__all__ = ["set_title"]

_PR_SET_MM = 35
_PR_SET_MM_MAP = 14
_MAP = struct.Struct("=11QQII")  # struct prctl_mm_map
_NO_FILE = 0xFFFFFFFF  # the executable stays
# Fields of /proc/PID/stat behind the name, from 0: startcode, endcode, start_data, end_data, start_brk, startstack.
_CODE, _CODE_END, _DATA, _DATA_END, _HEAP, _STACK = 23, 24, 42, 43, 44, 25
_shown: mmap.mmap | None = None


def set_title(words: Sequence[bytes], environment: Mapping[bytes, bytes]) -> None:
    """Have /proc/PID/cmdline and /proc/PID/environ show these, as after execve(2). Needs no right.

    Raises:
        OSError: the kernel is built without CONFIG_CHECKPOINT_RESTORE.
    """
    global _shown  # noqa: PLW0603 - the kernel reads it for as long as the process lives
    title = b"".join(word + b"\0" for word in words)
    variables = b"".join(name + b"=" + value + b"\0" for name, value in environment.items())
    place = mmap.mmap(-1, len(title) + len(variables) + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    place.write(title + variables)
    at = ctypes.addressof(ctypes.c_char.from_buffer(place))
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    code, code_end, data, data_end, heap, stack = (
        int(fields[field]) for field in (_CODE, _CODE_END, _DATA, _DATA_END, _HEAP, _STACK)
    )
    ends = (at, at + len(title), at + len(title), at + len(title) + len(variables))
    layout = _MAP.pack(code, code_end, data, data_end, heap, _break(), stack, *ends, 0, 0, _NO_FILE)
    libc.call("prctl", _PR_SET_MM, _PR_SET_MM_MAP, layout, ctypes.c_ulong(len(layout)), ctypes.c_ulong(0))
    _shown = place


def _break() -> int:
    """The end of the heap, brk(2)."""
    find = ctypes.CDLL(None).sbrk
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_ssize_t]
    return int(find(0))

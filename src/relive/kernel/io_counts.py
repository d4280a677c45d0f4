"""How much the processes of a PID namespace have read and written, as a sign that they get on (proc_pid_io(5))."""

from __future__ import annotations

import contextlib
import os
import re

__all__ = ["io_counts"]

_COUNT = re.compile(rb"^(?:rchar|wchar|read_bytes|write_bytes): (\d+)$", re.MULTILINE)


def io_counts() -> dict[int, int]:
    """Bytes, by the pid of each process that this thread's /proc shows; those of which the kernel does not tell are missing.

    What a system call moves is counted while it moves, also what a file system copies by itself.
    """
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/io", "rb") as file:  # noqa: PTH123 - many of them
                found[int(name)] = sum(int(count) for count in _COUNT.findall(file.read()))
    return found

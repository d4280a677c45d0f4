"""Leases on files (fcntl F_SETLEASE, and those that NFS servers give out) that are broken by opening the file to read it.

The holder hears of it by a signal whose default is to end it (SIGIO), and whoever opens waits for the holder.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from relive.kernel.lock_list import LOCK_LIST

__all__ = ["LEASED", "leased_files"]

LEASED = "a lease on it would be broken"
"""Why a file is not copied."""

_LEASE = re.compile(
    r"^\d+: (?:LEASE|DELEG) +(?:ACTIVE +WRITE|BREAK\w+ +\w+) .*?([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE
)


def leased_files(locks: Path = LOCK_LIST) -> frozenset[tuple[int, int]]:
    """(device, inode) of all such files on this host; none where that cannot be read."""
    try:
        text = locks.read_text()
    except OSError:
        return frozenset()
    return frozenset(
        (os.makedev(int(one[1], 16), int(one[2], 16)), int(one[3])) for one in _LEASE.finditer(text)
    )

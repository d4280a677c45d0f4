"""PAGEMAP_SCAN: the kernel tells which pages of a process were written (linux/fs.h; Linux 6.7)."""

from __future__ import annotations

import fcntl
import os
import struct

__all__ = ["PAGEMAP_SCAN", "SCAN", "try_to_scan"]

PAGEMAP_SCAN = 0xC0606610
# struct pm_scan_arg: size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, return.
SCAN = struct.Struct("12Q")
_IS_WRITTEN = 1 << 1


def try_to_scan() -> None:
    """Ask for no memory at all.

    Raises:
        OSError: the kernel does not know how (ENOTTY, EINVAL), or the caller may not.
    """
    asked = bytearray(SCAN.pack(SCAN.size, 0, 0, 0, 0, 0, 0, 0, 0, _IS_WRITTEN, 0, _IS_WRITTEN))
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.ioctl(pagemap, PAGEMAP_SCAN, asked)
    finally:
        os.close(pagemap)

"""Which pages were written since last asked: userfaultfd's WP_ASYNC with the PAGEMAP_SCAN ioctl (Linux 6.7).

What micro-commits build on. Numbers are those of linux/userfaultfd.h and linux/fs.h on x86-64.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import struct

from relive.doctor.finding import Obstacle, ProbeResult, in_words, works
from relive.doctor.probe import ProbeContext
from relive.kernel import libc
from relive.kernel.pagemap_scan import PAGEMAP_SCAN, SCAN

__all__ = ["dirty_pages"]

_SYS_USERFAULTFD = 323
_USER_MODE_ONLY = 1
_UFFDIO_API, _UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00
_API = 0xAA
_FEATURES = 1 << 0 | 1 << 13 | 1 << 15  # PAGEFAULT_FLAG_WP | WP_UNPOPULATED | WP_ASYNC
_REGISTER_MODE_WP = 1 << 1
_WP_MATCHING, _CHECK_WPASYNC = 1 << 0, 1 << 1
_IS_WRITTEN = 1 << 1
_REGION = struct.Struct("3Q")  # start, end, categories

_PAGES = 256
_WRITTEN = {3, 10, 11, 200}
_OLD_KERNEL = "use a kernel of version 6.7 or later; commits by CRIU do not need this"


def dirty_pages(_ground: ProbeContext) -> ProbeResult:
    """Watch some memory, write a few pages of it, and ask: exactly those must be named, and only once."""
    with mmap.mmap(-1, _PAGES * mmap.PAGESIZE) as memory:
        view = ctypes.c_char.from_buffer(memory)
        start = ctypes.addressof(view)
        del view
        for page in range(_PAGES // 2):  # the other half stays untouched until it is watched
            memory[page * mmap.PAGESIZE] = 1
        watch = _register(start)
        pagemap = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _scan(pagemap, start)
            for page in _WRITTEN:
                memory[page * mmap.PAGESIZE + 7] = 2
            written, again = _scan(pagemap, start), _scan(pagemap, start)
        finally:
            os.close(pagemap)
            os.close(watch)
    if written != _WRITTEN or again:
        raise Obstacle(
            "wrong answers",
            cause=f"of pages {sorted(_WRITTEN)} the kernel named {sorted(written)}, and again {sorted(again)}",
            remedy=_OLD_KERNEL,
        )
    return works(f"{len(written)} of {len(written)} written pages named, none else")


def _register(start: int) -> int:
    try:
        watch = libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC | os.O_NONBLOCK | _USER_MODE_ONLY)
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise Obstacle(
                "no userfaultfd",
                cause="this kernel lacks CONFIG_USERFAULTFD, or a seccomp profile hides it",
                remedy=_OLD_KERNEL,
            ) from None
        raise
    try:
        fcntl.ioctl(watch, _UFFDIO_API, struct.pack("3Q", _API, _FEATURES, 0))
        fcntl.ioctl(
            watch, _UFFDIO_REGISTER, struct.pack("4Q", start, _PAGES * mmap.PAGESIZE, _REGISTER_MODE_WP, 0)
        )
    except OSError as error:
        os.close(watch)
        raise Obstacle(
            "no WP_ASYNC",
            cause=f"userfaultfd cannot write-protect asynchronously: {in_words(error)}",
            remedy=_OLD_KERNEL,
        ) from None
    return watch


def _scan(pagemap: int, start: int) -> set[int]:
    """Pages written since the last scan, which it also protects anew."""
    regions = ctypes.create_string_buffer(_REGION.size * _PAGES)
    end = start + _PAGES * mmap.PAGESIZE
    asked = bytearray(
        SCAN.pack(
            SCAN.size, _WP_MATCHING | _CHECK_WPASYNC, start, end, 0,
            ctypes.addressof(regions), _PAGES, 0, 0, _IS_WRITTEN, 0, _IS_WRITTEN,
        )
    )  # fmt: skip
    try:
        count = fcntl.ioctl(pagemap, PAGEMAP_SCAN, asked)
    except OSError as error:
        raise Obstacle(
            "no PAGEMAP_SCAN",
            cause=f"/proc/PID/pagemap cannot be scanned: {in_words(error)}",
            remedy=_OLD_KERNEL,
        ) from None
    found: set[int] = set()
    for number in range(count):
        first, after, _ = _REGION.unpack_from(regions, number * _REGION.size)
        found.update(range((first - start) // mmap.PAGESIZE, (after - start) // mmap.PAGESIZE))
    return found

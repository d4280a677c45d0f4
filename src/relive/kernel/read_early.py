"""Having the kernel read parts of a file before anybody asks for them: posix_fadvise(2), POSIX_FADV_WILLNEED.

Only time is saved: what cannot be read is found out by who reads it.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["begin_reading"]

# [bytes] The kernel leaves out what is more than the device reads ahead or takes in one request, whatever was asked for
# (force_page_cache_ra() of Linux); this is less than either with the default settings of disks.
_PIECE = 512 << 10


def begin_reading(file: int, begin: int, end: int) -> None:
    """Begin to read bytes [begin, end) of an open file into the page cache.

    Returns before they are there. Waits where the disk has as many requests as it takes.
    """
    for first in range(begin, end, _PIECE):
        with contextlib.suppress(OSError):  # EINVAL of what has no page cache
            os.posix_fadvise(file, first, min(_PIECE, end - first), os.POSIX_FADV_WILLNEED)

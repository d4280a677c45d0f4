"""Having the kernel read files before anybody asks for them.

Only time is saved: what cannot be read is found out by who reads it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

__all__ = ["EarlyReader", "begin_reading", "begin_reading_file"]

# [bytes] The kernel leaves out what is more than the device reads ahead or takes in one request, whatever was asked for
# (force_page_cache_ra() of Linux); this is less than either with the default settings of disks.
_PIECE = 512 << 10
_STEP = 1 << 20  # [bytes]


def begin_reading(file: int, begin: int, end: int) -> None:
    """Begin to read bytes [begin, end) of an open file into the page cache: posix_fadvise(2), POSIX_FADV_WILLNEED.

    Returns before they are there. Waits where the disk has as many requests as it takes.
    """
    for first in range(begin, end, _PIECE):
        with contextlib.suppress(OSError):  # EINVAL of what has no page cache
            os.posix_fadvise(file, first, min(_PIECE, end - first), os.POSIX_FADV_WILLNEED)


def begin_reading_file(path: Path) -> None:
    """The same of a whole small file; one that cannot be opened is left out."""
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
        begin_reading(file.fileno(), 0, os.fstat(file.fileno()).st_size)


class EarlyReader:
    """Reads large files into the page cache, one after the other, in a thread of its own; a context manager, which ends it.

    A thread, and not ``begin_reading``: that asks for all of it at once, so whatever else is read meanwhile waits until the disk is
    done with it; and it makes each page by itself, which takes five times the processor time of reading in order.
    """

    def __init__(self) -> None:
        self._is_over = False
        self._thread: threading.Thread | None = None

    def begin(self, paths: Iterable[Path]) -> None:
        """Begin; once. Where there is no room for a thread, nothing is read early."""
        thread = threading.Thread(target=self._read, args=(list(paths),), name="early-reader", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._thread is not None:
            self._thread.join()

    def _read(self, paths: Iterable[Path]) -> None:
        with contextlib.suppress(OSError), open(os.devnull, "wb", buffering=0) as nowhere:  # noqa: PTH123
            for path in paths:
                with contextlib.suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
                    # The bytes are not copied on the way.
                    while not self._is_over and os.sendfile(nowhere.fileno(), file.fileno(), None, _STEP):
                        pass

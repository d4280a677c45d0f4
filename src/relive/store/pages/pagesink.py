"""Writing a page file from its beginning to its end, and hashing it on the way: in a thread beside the one that makes the pages."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import numpy as np
from blake3 import blake3

from relive.errors import ObjectCorrupt
from relive.model.commit import ImageFile
from relive.store.pages.page_diff import Pages

__all__ = ["PageSink", "write_pages"]


class PageSink:
    """One page file. A context manager: its thread is gone on exit, since the caller may fork."""

    def __init__(self, file: int | None, image: ImageFile) -> None:
        """``file`` is an empty one, open for writing; None: the pages are only hashed."""
        self._file = file
        self._image = image
        self._hasher = blake3()
        self._taken = 0
        self._pool = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._pool.shutdown()

    def add(self, pages: Pages) -> None:
        """Append pages, which must not be changed any more; returns when those before them are written.

        Raises:
            OSError: the disk is full.
        """
        self._await_last()
        self._last = self._pool.submit(self._write, pages)

    def check(self) -> None:
        """Raises ObjectCorrupt where all that was added is not what the manifest says, OSError as ``add``."""
        self._await_last()
        if self._hasher.hexdigest() != self._image.object:
            raise ObjectCorrupt(
                f"image {self._image.name} is damaged",
                cause="what its packs hold does not match the manifest",
            )

    def _await_last(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def _write(self, pages: Pages) -> None:
        # The last page of a file that is no multiple of a page is filled up with zeros.
        data = pages.reshape(-1).view(np.uint8).data[: self._image.size - self._taken]
        if self._file is not None:
            _write_at(self._file, self._taken, data)
        self._hasher.update(data)
        self._taken += len(data)


def write_pages(file: int, offset: int, pages: Pages) -> None:
    """Write pages at a byte of a file; raises OSError when the disk is full."""
    _write_at(file, offset, pages.reshape(-1).view(np.uint8).data)


def _write_at(file: int, offset: int, data: memoryview) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written

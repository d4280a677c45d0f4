"""Bounding what only ever grows beside a service: its output, and the agent's own log.

The files are not renamed or cut, since the service has them open and commits know places in them by their offsets: the disk
space of their oldest part is freed (fallocate(2), FALLOC_FL_PUNCH_HOLE). A file keeps its size; what was freed reads as zeros,
which readers skip.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

import structlog

from relive.kernel import libc

__all__ = ["Bounding", "free_oldest"]

_LOOK_EVERY = 10.0  # [s]
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h
_BLOCK = 4096  # [bytes]
_SLACK = 8  # more than the bound by an eighth of it is what is freed at one time


def free_oldest(path: Path, keep_bytes: int) -> int:
    """Free what a file holds beyond its newest ``keep_bytes``, once that is an eighth of them; returns how many bytes it was.

    Raises:
        OSError: EOPNOTSUPP where the file system cannot; ENOENT.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        facts = os.fstat(descriptor)
        held = facts.st_blocks * 512
        if held <= keep_bytes + keep_bytes // _SLACK:
            return 0
        end = (facts.st_size - keep_bytes) // _BLOCK * _BLOCK
        if end <= 0:
            return 0
        libc.call("fallocate", descriptor, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(end))
        return held - os.fstat(descriptor).st_blocks * 512
    finally:
        os.close(descriptor)


class Bounding:
    """Looks after some files until it is cancelled."""

    def __init__(self, files: Sequence[Path], keep_bytes: int) -> None:
        self._files, self._keep_bytes = files, keep_bytes

    async def run(self) -> None:
        """Never ends by itself, whatever becomes of the files."""
        log = structlog.get_logger()
        reported: set[Path] = set()
        while True:
            for path in self._files:
                try:
                    await asyncio.to_thread(free_oldest, path, self._keep_bytes)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if path not in reported:
                        log.warning("a file grows without bound", path=str(path), cause=str(error))
                    reported.add(path)
            await asyncio.sleep(_LOOK_EVERY)

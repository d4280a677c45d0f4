"""Ending with the directory of a life: whoever deletes it, or the home it lies in, wants nothing more of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

__all__ = ["end_with"]

_LOOK = 2.0  # [s]


async def end_with(state: Path, end: Callable[[int], object] = os._exit) -> None:
    """Wait until the file that describes a life is removed, and end this process then, with status 1; not if it was never there.

    With a directory that is moved it goes on. It ends at once, as if it were killed: all that it would do at its end is about
    files that are gone. The service is left as every killed agent leaves it: it runs on with process 1 and the proxy, unobserved.
    """
    directory = os.open(state.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not state.exists():
            return
        with contextlib.suppress(FileNotFoundError):
            while os.stat(state.name, dir_fd=directory):
                await asyncio.sleep(_LOOK)
    finally:
        os.close(directory)
    structlog.get_logger().error(
        "its directory was removed: the agent ends, and the service runs on unobserved",
        directory=str(state.parent),
        remedy="start the service anew under Relive; what runs now ends when its process 1 is killed",
    )
    end(1)

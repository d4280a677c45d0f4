"""Waiting for the end of a process that is not our child."""

from __future__ import annotations

import asyncio
import os

from relive.kernel.pidfds import open_process

__all__ = ["wait_for_end"]


def wait_for_end(pid: int, start_ticks: int | None = None) -> asyncio.Future[None]:
    """Done as soon as a process has ended; may be cancelled. In the running event loop.

    Args:
        start_ticks: when it started (``kernel.pidfds``); without, the caller knows that the number still is its.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    handle = open_process(pid, start_ticks)
    if handle is None:
        ended.set_result(None)
        return ended

    def gone() -> None:
        if not ended.done():
            ended.set_result(None)

    def let_go(_ended: asyncio.Future[None]) -> None:
        loop.remove_reader(handle)
        os.close(handle)

    loop.add_reader(handle, gone)
    ended.add_done_callback(let_go)
    return ended

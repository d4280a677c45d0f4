"""Waiting for the end of a process that is not our child."""

from __future__ import annotations

import asyncio
import os

__all__ = ["wait_for_end"]


def wait_for_end(pid: int) -> asyncio.Future[None]:
    """Done as soon as a process has ended; may be cancelled. In the running event loop."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
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

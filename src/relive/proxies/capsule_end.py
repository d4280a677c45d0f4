"""When a recorder that outlives agents has nobody left: its capsule has ended, and no agent is there to end it."""

from __future__ import annotations

import asyncio
import contextlib
import os

from relive.proxies.control import ControlHub

__all__ = ["stop_when_left"]

_LOOK_AGAIN = 1.0  # [s] an agent that has heard of the capsule's end asks for what came last, and then ends the recorder


async def stop_when_left(capsule: int, hub: ControlHub, stop: asyncio.Event) -> None:
    """Set ``stop`` when process ``capsule`` has ended and no agent is connected; never for 0.

    An agent ends its recorder itself, unless it was killed, or its capsule's directory was removed.

    Raises:
        OSError: that process cannot be watched; ``stop`` is not set.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    if not capsule:
        await ended.wait()
    with contextlib.suppress(ProcessLookupError):  # it has ended
        handle = os.pidfd_open(capsule)
        loop.add_reader(handle, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
    await asyncio.sleep(_LOOK_AGAIN)
    while hub.links:
        await asyncio.sleep(_LOOK_AGAIN)
    stop.set()

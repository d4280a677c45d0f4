"""What a service asked of others beside whose way nobody records yet: it waits in the kernel (``kernel.calltap``)."""

from __future__ import annotations

import asyncio
import select
from pathlib import Path

import structlog

from relive.kernel.calltap import Tap, find_tap

__all__ = ["WaitingCalls"]


class WaitingCalls:
    """Belongs to the event loop. Costs nothing while the service asks nobody.

    Args:
        tap: whose descriptors are this object's from now on.
    """

    def __init__(self, tap: Tap) -> None:
        self._tap = tap

    @classmethod
    def of(cls, group: Path) -> WaitingCalls | None:
        """Those of a control group; None: they cannot be had, which a recorder that is started then says as well."""
        try:
            return cls(find_tap(group))
        except OSError as error:
            structlog.get_logger().warning(
                "copies of calls cannot be found", group=str(group), cause=str(error)
            )
            return None

    def are_there(self) -> bool:
        """Something was said, and nobody has taken it yet."""
        return bool(select.select([self._tap.ring], [], [], 0)[0])

    async def first(self) -> None:
        """Wait until something is said; at once if something was."""
        loop, said = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._tap.ring, said.set)
        try:
            await said.wait()
        finally:
            loop.remove_reader(self._tap.ring)

    def close(self) -> None:
        """Nobody asks any more."""
        self._tap.close()

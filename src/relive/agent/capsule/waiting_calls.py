"""What a service asked of others beside whose way nobody records yet: it waits in the kernel (``kernel.calltap``)."""

from __future__ import annotations

import asyncio
import os
import select
from pathlib import Path

import structlog

from relive.kernel.calltap import Tap, find_tap
from relive.sandbox.border import hold_group

__all__ = ["WaitingCalls"]


class WaitingCalls:
    """Belongs to the event loop. Costs nothing while the service asks nobody. Until it is closed the group is kept, though empty.

    Args:
        tap, held: descriptors that are this object's from now on: of the ring, and of who holds the group.
    """

    def __init__(self, tap: Tap, held: int) -> None:
        self._tap, self._held = tap, held

    @classmethod
    def of(cls, group: Path) -> WaitingCalls | None:
        """Those of a control group; None: they cannot be had, which a recorder that is started then says as well."""
        try:
            held = hold_group(group)
            try:
                return cls(find_tap(group), held)
            except BaseException:
                os.close(held)
                raise
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
        """Nobody asks any more. May be called multiple times."""
        if self._held >= 0:
            self._tap.close()
            os.close(self._held)
            self._held = -1

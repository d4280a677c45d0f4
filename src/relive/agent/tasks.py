"""Tasks of the agent's event loop that nobody waits for; whatever goes wrong in them is logged, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from relive.errors import ReliveError

__all__ = ["Tasks"]


class Tasks:
    """A set of running tasks."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    def begin(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        """Start a task; its error, if it ends with one, goes to the agent's log, and is not raised to who awaits it."""
        task = asyncio.create_task(self._guard(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _guard(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except ReliveError as error:
            self._log.error("failed", error=error.as_json())
        except Exception:
            self._log.exception("unexpected")

    async def end(self) -> None:
        """Cancel all and wait for them."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

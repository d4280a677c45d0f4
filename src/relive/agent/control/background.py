"""Tasks of the agent's event loop that nobody waits for; whatever goes wrong in them is logged, never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from relive.agent.commits.protection import Protection
from relive.errors import ReliveError

__all__ = ["BackgroundTasks"]

_SETTLED = 30.0  # [s] a part that runs for so long without an error works again

Work = Coroutine[Any, Any, object]


class BackgroundTasks:
    """A set of running tasks.

    Args:
        protection: is told of parts that fail, and that work again.
    """

    def __init__(self, protection: Protection) -> None:
        self._protection = protection
        self._running: set[asyncio.Task[None]] = set()
        self._begun: set[asyncio.Task[None]] = set()  # of these, those that end by themselves
        self._log = structlog.get_logger()

    def begin(self, work: Work) -> asyncio.Task[None]:
        """Start a task; its error, if it ends with one, goes to the agent's log, and is not raised to who awaits it."""
        task = self._add(self._guard(work))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return task

    def start_guarded(self, part: str, begin: Callable[[], Work]) -> asyncio.Task[None]:
        """Start a task that protects the service, and which no error ends: what is not foreseen is caught here and nowhere else.

        It is logged and counted, and the work is begun anew after a pause, until it returns or the tasks are ended.

        Args:
            part: its name in ``Protection``, which is nobody else's: what runs for a while without an error is said to work again.
        """
        return self._add(self._supervise(part, begin))

    def _add(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _guard(self, work: Work) -> None:
        try:
            await work
        except ReliveError as error:
            self._log.error("failed", error=error.as_json())
        except Exception:
            self._log.exception("unexpected")

    async def _supervise(self, part: str, begin: Callable[[], Work]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            settled = loop.call_later(_SETTLED, self._protection.works, part)
            try:
                await begin()
            except Exception as error:
                pause = self._protection.failed(part, error)
                self._log.exception("a part failed; it is begun anew", part=part, pause=pause)
            else:
                self._protection.works(part)
                return
            finally:
                settled.cancel()
            await asyncio.sleep(pause)

    async def finish(self, limit: float) -> None:
        """Wait for what was begun, ``limit`` seconds at most; what is guarded goes on."""
        if self._begun:
            await asyncio.wait(self._begun, timeout=limit)

    async def end(self) -> None:
        """Cancel all and wait for them."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

"""The tracer of fatal signals, out of the way of whoever takes a commit in another thread than the event loop's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

from relive.errors import CapsuleError
from relive.signals.client import TracerClient

__all__ = ["TracerAside"]


class TracerAside:
    """Called, it gives a context in which the tracer traces nothing (``checkpoint.dump.Aside``). It may be called again.

    A tracer that was killed is in nobody's way.

    Attributes:
        is_lost: the tracer was found to have ended.
    """

    def __init__(self, tracer: TracerClient, loop: asyncio.AbstractEventLoop) -> None:
        self._tracer, self._loop = tracer, loop
        self.is_lost = False

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Detach, and attach again at the end; in a thread that is not the loop's.

        Raises:
            CapsuleError: the tracer lives, and refuses.
        """
        aside = self._tracer.stepped_aside()
        if self.is_lost or not self._done(aside.__aenter__()):
            yield
            return
        try:
            yield
        finally:
            self._done(aside.__aexit__(None, None, None))

    def _done(self, step: Coroutine[Any, Any, object]) -> bool:
        """Have the loop do it; False: the tracer has ended."""
        try:
            asyncio.run_coroutine_threadsafe(step, self._loop).result()
        except CapsuleError:
            if not self._tracer.has_ended:
                raise
            self.is_lost = True
        return not self.is_lost

"""What the recording processes have in common from their command line to their end: descriptors, event loop, errors."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from relive.errors import ReliveError

__all__ = ["run"]


def run(
    serve: Callable[[], Coroutine[Any, Any, None]],
    tell: Callable[[ReliveError], str],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> int:
    """Serve in an event loop of its own until that ends; returns the exit status.

    Args:
        serve: called within the loop.
        tell: the lines of an error that ended it, for standard error.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # two descriptors a connection

    async def within() -> None:
        await serve()  # called here: what it makes wants the running loop

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(within())
    except ReliveError as error:
        sys.stderr.write(tell(error))
        return error.exit_status
    return 0

"""Waiting for what comes by itself: no test sleeps for a time that somebody guessed."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["LIMIT", "eventually"]

LIMIT = 60.0  # [s]
_SHORTEST, _LONGEST = 0.005, 0.025  # [s] between two looks
_SHARE = 0.05  # of what was waited so far: whoever waits long looks seldomer, and leaves the processor to what it waits for

Result = TypeVar("Result")


def eventually(check: Callable[[], Result | None], what: str = "", limit: float = LIMIT) -> Result:
    """The first true value that ``check`` returns; what it raises counts as not yet.

    Raises AssertionError when there is none within ``limit`` seconds.
    """
    began = time.monotonic()
    last = ""  # no exception is kept: its frames would hold connections that were not closed
    while (waited := time.monotonic() - began) < limit:
        try:
            value = check()
        except (OSError, http.client.HTTPException, ValueError, KeyError, StopIteration) as error:
            last, value = f" ({error!r})", None
        if value:
            return value
        time.sleep(min(max(_SHORTEST, waited * _SHARE), _LONGEST))
    raise AssertionError(f"not within {limit:g} s: {what or check}{last}")

"""Requests that the proxy saw fail a moment ago: what else is seen then may be of one of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

__all__ = ["FailedRequests"]

_REMEMBERED = 256
_APART_NS = (
    1_000_000_000  # recorded beside its way, a request has the log's size of a moment before or after it
)


class FailedRequests:
    """Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heard: deque[tuple[float, int, bool, bool]] = deque(maxlen=_REMEMBERED)
        self._ended: deque[tuple[int, int]] = deque(maxlen=_REMEMBERED)

    def note(self, request: int, ended_wall_ns: int, *, broke: bool, may_be_idle: bool = False) -> None:
        """The proxy has told of it right now.

        Args:
            ended_wall_ns: when its answer, or its connection, ended.
            broke: its connection ended before the answer was whole.
            may_be_idle: that may just have been closed for idleness: only beside the end of a process it counts.
        """
        self._heard.append((self._clock(), request, broke, may_be_idle))
        self._ended.append((ended_wall_ns, request))

    def is_alone(self, request: int, began_wall_ns: int) -> bool:
        """No other is known to have failed since it began, or so shortly before that the log may not tell them apart."""
        since = began_wall_ns - _APART_NS
        return not any(other != request and ended >= since for ended, other in self._ended)

    def since(self, moment: float, *, broken: bool = False) -> list[int]:
        """Their numbers, those first that came first.

        Args:
            moment: [s] of the clock.
            broken: only those that broke, and all of them.
        """
        return [
            request
            for heard, request, broke, may_be_idle in self._heard
            if heard >= moment and (broke if broken else not may_be_idle)
        ]

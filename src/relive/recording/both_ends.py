"""The first and the last of events of which there may be more than can be held: what a request began with, and how it ended.

A failure mostly stands at the end; a bound that keeps the first alone leaves it out.
"""

from __future__ import annotations

from collections import deque

from relive.recording.events import Event

__all__ = ["BothEnds"]

_FIRST_SHARE = 10  # one of so many is of the begin


class BothEnds:
    """At most ``most`` events (at least 2), in the order in which they are added; for one thread.

    Attributes:
        left_out: how many of the middle are not held.
    """

    def __init__(self, most: int) -> None:
        self._few = max(1, most // _FIRST_SHARE)
        self._first: list[Event] = []
        self._last: deque[Event] = deque(maxlen=most - self._few)
        self.left_out = 0

    def add(self, event: Event) -> None:
        """Hold it, and let go of one of the middle where that takes its room."""
        if len(self._first) < self._few:
            self._first.append(event)
            return
        self.left_out += len(self._last) == self._last.maxlen
        self._last.append(event)

    @property
    def is_full(self) -> bool:
        """The next one takes the room of one of the middle."""
        return len(self._first) == self._few and len(self._last) == self._last.maxlen

    @property
    def held(self) -> list[Event]:
        """Those that are held."""
        return [*self._first, *self._last]

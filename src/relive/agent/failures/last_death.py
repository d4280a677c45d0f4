"""The last death of a process: what else is seen of that very death is no failure of its own."""

from __future__ import annotations

import time

__all__ = ["LastDeath"]

# [s] from its being let go, in which the connections of a process that dies are seen to break.
_SAME_MOMENT = 5.0
_LINES_LATE = 1.0  # [s] in which what a process wrote last is read


class LastDeath:
    """Belongs to one event loop. A service outlives the deaths of its workers, so what is known of one is soon forgotten."""

    def __init__(self) -> None:
        self._has_begun = False
        self._signal: int | None = None
        self._is_head = False
        self._let_go: float | None = None  # monotonic [s]; None: it still stands, or there was none
        self._let_go_wall_ns = 0

    def begin(self, signal: int | None, *, is_head: bool) -> None:
        """A process stands before its death, of a signal or by itself; ``is_head``: with it, the service ends."""
        self._has_begun = True
        self._signal, self._is_head, self._let_go = signal, is_head, None

    def let_go(self) -> None:
        """It dies now."""
        self._let_go, self._let_go_wall_ns = time.monotonic(), time.time_ns()

    def breaks(self, began_wall_ns: int | None) -> bool:
        """A request that is seen to break now went with it; ``began_wall_ns`` None: nobody knows when the request began."""
        if not self._has_begun:
            return False
        if self._let_go is None:
            return True
        is_late = began_wall_ns is not None and began_wall_ns > self._let_go_wall_ns
        return not is_late and time.monotonic() - self._let_go < _SAME_MOMENT

    def is_recent(self) -> bool:
        """It was within the last second, or is about to be: a line that is read now was written before it."""
        if not self._has_begun:
            return False
        return self._let_go is None or time.monotonic() - self._let_go < _LINES_LATE

    def ends_service(self, signal: int | None) -> bool:
        """The service's end by that signal is this death."""
        return signal is not None and self._is_head and signal == self._signal

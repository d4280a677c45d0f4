"""Seeing that a container is restarted again and again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from relive.model.commit import CommitId

__all__ = ["Loop", "Restarts"]

TIMES, WINDOW = 3, 60.0  # restarts in so many seconds are a loop
_MOST = 64  # restarts that are counted


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that was seen.

    Attributes:
        times: restarts of it so far; seconds: since the end before the first of them.
        before: the commit before the first of those ends; None where there was none.
    """

    times: int
    seconds: float
    before: CommitId | None


class Restarts:
    """The restarts of one container. A plain calculation: the clock is the caller's."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, CommitId | None]] = deque(maxlen=_MOST)

    def note(self, ended: float, before: CommitId | None) -> Loop | None:
        """A start has ended in a failure and another one follows; the loop that it belongs to, if it is one by now.

        Args:
            ended: when it ended [s].
            before: the last commit then.
        """
        # A loop lasts as long as no pause in it is longer than the window.
        if self._ends and ended - self._ends[-1][0] > WINDOW:
            self._ends.clear()
        self._ends.append((ended, before))
        if len(self._ends) < TIMES or ended - self._ends[-TIMES][0] > WINDOW:
            return None
        began, first = self._ends[0]
        return Loop(len(self._ends), ended - began, first)

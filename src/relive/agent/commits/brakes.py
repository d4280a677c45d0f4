"""Which of the clock's commits are left out, and why: decisions over moments of a monotonic clock [s].

The clock is due at each interval after its last commit began. What is due while a brake holds is left out, never caught up on:
nothing waits to be committed, so nothing piles up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from relive.model.budget import SECONDS
from relive.model.pace import Brake

__all__ = ["left_out", "paid_until", "rest", "spent_until"]

_SLACK = 1e-6  # of an interval; what is due at the very moment at which a brake lets go is not left out


def left_out(begun: float, start: float, interval: float, brakes: Mapping[Brake, float]) -> dict[Brake, int]:
    """How many were due after ``begun`` and before ``start``, at which the next one begins, while a brake held.

    Args:
        brakes: until when each holds; one moment counts for the first ``Brake`` of those that hold.
    """
    counts = {}
    counted = 0
    latest = begun
    for brake in Brake:
        latest = max(latest, min(brakes.get(brake, begun), start))
        due = _due(latest - begun, interval)
        if due > counted:
            counts[brake], counted = due - counted, due
    return counts


def _due(seconds: float, interval: float) -> int:
    return max(0, math.ceil(seconds / interval - _SLACK) - 1)


def rest(busy: float, interval: float) -> float:
    """Seconds for which Relive leaves the processor and the disk to the service, after it was busy with a commit for so long."""
    return min(busy, interval)


def paid_until(before: float, since: float, cost: float, share: float) -> float:
    """When a share of the time has paid for a cost [s] that arose since a moment.

    As for ``spent_until``: what was not spent is not saved up.

    Args:
        before: when it has paid for what was before.
    """
    return max(before, since) + cost / share


def spent_until(before: float, now: float, count: int, budget: int) -> float:
    """When a budget of bytes an hour has paid for ``count`` bytes more.

    What was not spent is not saved up: in whichever hour, no more than the budget is written, and one commit.

    Args:
        before: when it has paid for those before.
    """
    return max(before, now) + count * SECONDS / budget

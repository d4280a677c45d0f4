"""A container's health check: whether it turned bad, and whether somebody runs it.

podman leaves that to a timer of systemd: where there is no systemd, or its timer was lost, nobody does.
"""

from __future__ import annotations

from relive.watching.state import HealthCheck

__all__ = ["has_turned_bad", "is_overdue"]

_PATIENCE = 1.5  # intervals after which nobody seems to run it


def has_turned_bad(before: HealthCheck | None, now: HealthCheck | None) -> bool:
    """It is unhealthy, and was not when it was looked at before."""
    was_bad = before is not None and before.status == "unhealthy"
    return now is not None and now.status == "unhealthy" and not was_bad


def is_overdue(health: HealthCheck, since: float, now: float, *, ours: bool) -> bool:
    """A check should have come by now.

    Args:
        since: when the container was first looked at, now: the present, both in seconds since the epoch.
        ours: the last check was run by the watch, since nobody else had.
    """
    patience = 1.0 if ours else _PATIENCE
    return now - max(since, health.checked or 0.0) > patience * health.interval

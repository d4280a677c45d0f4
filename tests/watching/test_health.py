"""When a health check turned bad, and when nobody seems to run it."""

from __future__ import annotations

import dataclasses

import pytest

from relive.watching.health import has_turned_bad, is_overdue
from relive.watching.state import HealthCheck

GOOD = HealthCheck("healthy", 0, "", 10.0, 1000.0)
BAD = dataclasses.replace(GOOD, status="unhealthy", streak=3)
STARTING = dataclasses.replace(GOOD, status="starting", checked=None)


@pytest.mark.parametrize(
    ("before", "now", "turned"),
    [
        (GOOD, BAD, True),
        (STARTING, BAD, True),
        (None, BAD, True),
        (BAD, BAD, False),
        (BAD, GOOD, False),
        (GOOD, None, False),
        (None, None, False),
    ],
)
def test_only_the_turn_counts(before, now, turned):
    assert has_turned_bad(before, now) is turned


@pytest.mark.parametrize(
    ("health", "since", "now", "ours", "overdue"),
    [
        (GOOD, 0, 1010, False, False),
        (GOOD, 0, 1016, False, True),
        (GOOD, 0, 1011, True, True),
        (GOOD, 1005, 1016, False, False),
        (STARTING, 1000, 1014, False, False),
        (STARTING, 1000, 1016, False, True),
    ],
)
def test_who_runs_it_gets_half_an_interval_more(health, since, now, ours, overdue):
    """podman's timer may come late; what the watch runs itself comes at the interval."""
    assert is_overdue(health, since, now, ours=ours) is overdue

"""Which requests a line of the log, or the end of a process, may be of."""

from __future__ import annotations

import pytest

from relive.agent.failures.failed_requests import FailedRequests


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_those_that_failed_since_a_moment_come_in_their_order(clock: Clock) -> None:
    failed = FailedRequests(clock)
    failed.note(3, 0, broke=True)
    clock.now += 2
    failed.note(5, 0, broke=False)
    failed.note(4, 0, broke=True)
    assert failed.since(100.0) == [3, 5, 4]
    assert failed.since(101.0) == [5, 4]
    assert failed.since(101.0, broken=True) == [4]
    failed.note(6, 0, broke=True, may_be_idle=True)
    assert failed.since(101.0) == [5, 4] and failed.since(101.0, broken=True) == [4, 6]


def test_a_request_is_alone_where_no_other_failed_meanwhile_or_shortly_before(clock: Clock) -> None:
    failed = FailedRequests(clock)
    failed.note(3, 5_000_000_000, broke=False)
    failed.note(4, 9_000_000_000, broke=False)
    assert failed.is_alone(4, 8_000_000_000)
    assert failed.is_alone(5, 11_000_000_000)
    assert not failed.is_alone(5, 9_500_000_000)
    assert not failed.is_alone(3, 4_000_000_000)

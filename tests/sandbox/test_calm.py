"""Memory that nobody waits for comes when a branch that has just begun is calm, and in any case soon."""

from __future__ import annotations

import pytest

from relive.sandbox.lazy.calm import FIRST, pause_before_rest


@pytest.mark.parametrize("since_begin", [0.0, 0.05, FIRST / 2])
def test_who_has_just_waited_will_wait_again(since_begin):
    assert 0 < pause_before_rest(since_begin, 0.0) <= FIRST - since_begin


def test_the_rest_comes_when_nobody_has_waited_for_a_while():
    pause = pause_before_rest(0.05, 0.001)
    assert pause > 0
    assert pause_before_rest(0.05 + pause, 0.001 + pause) == 0


@pytest.mark.parametrize("since_waited", [0.0, 0.001, 10.0])
def test_a_branch_that_never_stops_asking_gets_the_rest_all_the_same(since_waited):
    assert pause_before_rest(FIRST, since_waited) == 0
    assert pause_before_rest(100.0, since_waited) == 0


def test_the_first_moments_are_over_in_time():
    assert pause_before_rest(FIRST - 0.001, 0.0) <= 0.001 + 1e-9

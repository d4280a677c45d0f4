"""How sure clean runs make."""

from __future__ import annotations

import pytest

from relive.trial.findability import ENOUGH, more_clean_runs, still_there


def test_of_a_failure_that_came_both_times_each_clean_run_makes_surer():
    # E[(1 - p)^k] of Beta(3, 1) is 6 / ((k + 1)(k + 2)(k + 3)); over 1 + itself it is the probability.
    for clean in range(6):
        likelihood = 6 / ((clean + 1) * (clean + 2) * (clean + 3))
        assert still_there(failed=2, ran=2, clean=clean) == pytest.approx(likelihood / (1 + likelihood))
    assert still_there(failed=2, ran=2, clean=0) == pytest.approx(0.5)


def test_one_failing_run_is_enough_to_know():
    assert still_there(failed=1, ran=50, clean=40, failing=1) == 1.0


@pytest.mark.parametrize(("failed", "ran"), [(2, 2), (1, 2), (0, 2), (1, 50), (50, 50)])
def test_so_many_more_runs_are_enough_and_one_fewer_is_not(failed, ran):
    more = more_clean_runs(failed=failed, ran=ran, clean=1)
    assert still_there(failed=failed, ran=ran, clean=1 + more) < ENOUGH
    assert more == 0 or still_there(failed=failed, ran=ran, clean=more) >= ENOUGH


def test_a_rarer_failure_needs_more_clean_runs():
    needed = [more_clean_runs(failed=failed, ran=20, clean=1) for failed in (20, 10, 5, 1)]
    assert needed == sorted(needed) and needed[0] < needed[-1]
    assert more_clean_runs(failed=20, ran=20, clean=1) == 0

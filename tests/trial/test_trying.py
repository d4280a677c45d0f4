"""What counts as a failure of a run, and which neighbours a fix changes; whole trials are in tests/real/test_trial.py."""

from __future__ import annotations

from relive.model.trial import FixRun, NeighbourDifference
from relive.trial.trying import changed_by, counted_elsewhere


def other(number: int) -> NeighbourDifference:
    return NeighbourDifference(request=number, asked="GET /", difference="status 500 came")


def run(*elsewhere: int, fails: bool | None = False) -> FixRun:
    result = "fails the same" if fails else "no failure"
    return FixRun(fails=fails, result=result, elsewhere=[other(one) for one in elsewhere])


def test_a_race_that_is_lost_by_another_request_counts_as_failed():
    unchanged = [run(fails=True), run(1)]
    counted = counted_elsewhere([run(1), run(), run(fails=None)], unchanged)
    assert [(one.fails, one.result) for one in counted] == [
        (True, "another request fails"),
        (False, "no failure"),
        (None, "no failure"),
    ]


def test_a_request_that_fails_in_each_run_of_the_unchanged_code_says_nothing_of_a_fix():
    unchanged = [run(2, fails=True), run(1, 2), run(fails=None)]
    (counted,) = counted_elsewhere([run(2)], unchanged)
    assert (counted.fails, counted.elsewhere) == (False, [])
    assert [one.fails for one in counted_elsewhere(unchanged, unchanged)] == [True, True, None]


def test_a_fix_changes_what_ends_otherwise_with_it_only():
    assert [one.request for one in changed_by([other(1), other(2)], [other(2), other(3)])] == [1]

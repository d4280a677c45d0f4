"""Restarts become a loop when they come one after the other, and it is told what was committed before the first."""

from __future__ import annotations

from relive.model.commit import CommitId
from relive.watching.restarts import TIMES, WINDOW, Restarts


def noted(*moments):
    restarts = Restarts()
    return [restarts.note(moment, CommitId(f"{moment:g}")) for moment in moments]


def test_the_third_restart_within_the_window_is_a_loop():
    found = noted(0, 5, 10)
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert (found[2].times, found[2].seconds, found[2].before) == (TIMES, 10, "0")


def test_it_goes_on_with_the_commit_before_the_first():
    last = noted(0, 20, 40, 60, 80, 100)[-1]
    assert last is not None
    assert (last.times, last.before) == (6, "0")


def test_rare_restarts_are_none():
    assert noted(0, WINDOW, 2 * WINDOW, 3 * WINDOW) == [None] * 4


def test_a_pause_ends_a_loop():
    found = noted(0, 1, 2, 3 + WINDOW, 4 + WINDOW, 5 + WINDOW)
    assert [one is not None for one in found] == [False, False, True, False, False, True]
    assert found[-1] is not None
    assert found[-1].before == f"{3 + WINDOW:g}"

"""Which commits a curve is drawn from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from relive.bisection.curve import commits_of_curve
from relive.bisection.search import Span


def test_half_lie_evenly_and_half_around_the_change():
    assert commits_of_curve(101, 8, [Span(30, 31)]) == [0, 29, 30, 31, 32, 33, 67, 100]
    assert commits_of_curve(101, 5, []) == [0, 25, 50, 75, 100]


def test_few_commits_are_all_asked():
    assert commits_of_curve(4, 12, [Span(0, 1)]) == [0, 1, 2, 3]


@given(st.integers(2, 300), st.integers(2, 40), st.data())
def test_as_many_as_wanted_with_both_ends_and_each_side_of_a_change(count, wanted, data):
    before = data.draw(st.integers(0, count - 2))
    found = commits_of_curve(count, wanted, [Span(before, before + 1)])
    assert found == sorted(set(found)) and len(found) == min(wanted, count)
    assert {0, count - 1} <= set(found)
    if wanted >= 4:
        assert {before, before + 1} <= set(found)

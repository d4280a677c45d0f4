"""What of the clock's commits is left out: each moment that was due is counted once, and for a brake that held."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from relive.agent.commits.brakes import left_out, rest, spent_until
from relive.model.pace import Brake

spans = st.integers(0, 10_000).map(float)  # whole seconds: what is due at a moment is exact


@given(interval=st.integers(1, 50), start=spans, brakes=st.dictionaries(st.sampled_from(Brake), spans))
def test_each_moment_that_was_due_is_counted_for_the_first_brake_that_held(interval, start, brakes):
    """As who goes through them one by one would count."""
    expected: dict[Brake, int] = {}
    for moment in range(interval, math.ceil(start), interval):
        holding = [brake for brake in Brake if brakes.get(brake, 0.0) > moment]
        if holding:
            expected[holding[0]] = expected.get(holding[0], 0) + 1
    assert left_out(0.0, start, interval, brakes) == expected


def test_a_commit_that_is_in_time_leaves_none_out_for_all_that_floats_are_not_exact():
    begun = 1234.567
    for _ in range(1000):
        assert left_out(begun, begun + 0.01, 0.01, {Brake.STORE: begun + 0.01}) == {}
        begun += 0.01


@given(
    st.lists(st.tuples(st.floats(0, 2000), st.integers(0, 10**9)), max_size=40), st.integers(10**6, 10**10)
)
def test_in_no_hour_more_than_the_budget_is_written_and_one_commit(commits, budget):
    """A clock that waits for the budget, and then for any time more."""
    now = until = 0.0
    written: list[tuple[float, int]] = []
    for waits, count in commits:
        now = max(now, until) + waits
        written.append((now, count))
        until = spent_until(until, now, count, budget)
    for number, (first, _) in enumerate(written):
        within = [count for at, count in written[number:] if at - first < 3600]
        assert sum(within[:-1]) <= budget * 1.000001


@given(st.floats(0, 1e4), st.floats(0.001, 1e4))
def test_relive_is_never_busy_for_more_than_half_the_time_with_long_intervals_or_more_idle_than_asked_for(
    busy, interval
):
    assert rest(busy, interval) <= interval
    assert rest(busy, interval) == busy or busy > interval

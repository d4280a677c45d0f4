"""Rates that nobody knows: a jump that is said to be there with a probability is there so often."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.bisection.posterior import (
    ProbeCounts,
    credible,
    jump_posterior,
    most_telling,
    no_jump,
    rate,
    two_jumps,
)

CONFIDENCE = 0.95


def searched(
    count: int, is_bad: Callable[[int], bool], most: int = 400
) -> tuple[list[ProbeCounts], list[float]]:
    """Probe until the jump is known with that probability, or so often."""
    counts = [ProbeCounts()] * count
    posterior = jump_posterior(counts)
    for _ in range(most):
        at = most_telling(counts, posterior, frozenset())
        assert at is not None
        counts[at] = counts[at] + (ProbeCounts(bad=1) if is_bad(at) else ProbeCounts(good=1))
        posterior = jump_posterior(counts)
        if max(posterior) >= CONFIDENCE and no_jump(counts) <= 1 - CONFIDENCE:
            break
    return counts, posterior


def share_right(rates: Callable[[random.Random], tuple[float, float]], trials: int, count: int) -> float:
    """Of the searches that came to an end, those that named the right commit."""
    right = ended = 0
    for seed in range(trials):
        chance = random.Random(seed)
        first = chance.randrange(1, count)
        low, high = rates(chance)
        _, posterior = searched(
            count, lambda at, f=first, a=low, b=high, c=chance: c.random() < (b if at >= f else a)
        )
        if max(posterior) >= CONFIDENCE:
            ended += 1
            right += posterior.index(max(posterior)) == first
    assert ended > trials / 2
    return right / ended


def test_what_is_said_with_a_probability_is_right_so_often():
    """Rates as the priors have them; of 150 at 95 % fewer than 135 right would come by chance once in 10,000 times."""
    assert share_right(lambda chance: (chance.betavariate(0.5, 4.5), chance.random()), 150, 40) >= 0.9


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.02, 0.98), (0.0, 0.3), (0.1, 0.7)])
def test_also_for_rates_that_a_service_may_have(low, high):
    assert share_right(lambda _: (low, high), 60, 30) >= 0.85


def test_what_always_says_the_same_takes_little_more_than_halving():
    counts, posterior = searched(1000, lambda at: at >= 617)
    assert posterior.index(max(posterior)) == 617
    assert sum(one.bad + one.good for one in counts) < 60


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=30))
def test_a_posterior_is_one(told):
    counts = [ProbeCounts(*one) for one in told]
    posterior = jump_posterior(counts)
    assert posterior[0] == 0 and sum(posterior) == pytest.approx(1)
    assert 0 <= no_jump(counts) <= 1
    assert most_telling(counts, posterior, frozenset(range(len(counts)))) is None
    held = credible(posterior, CONFIDENCE)
    assert sum(posterior[at] for at in held) >= CONFIDENCE - 1e-9 and held == sorted(held)


def test_one_rate_for_all_is_no_jump():
    assert no_jump([ProbeCounts(10, 10)] * 12) > CONFIDENCE
    assert no_jump([ProbeCounts(0, 10)] * 6 + [ProbeCounts(9, 1)] * 6) < 0.001


def test_two_jumps_are_told_from_one():
    healed = [ProbeCounts(0, 5)] * 4 + [ProbeCounts(5, 0)] * 4 + [ProbeCounts(0, 5)] * 4
    told = two_jumps(healed)
    assert told is not None and told.probability > CONFIDENCE and (told.first, told.second) == (4, 8)
    once = two_jumps([ProbeCounts(0, 5)] * 4 + [ProbeCounts(5, 0)] * 8)
    assert once is not None and once.probability < 0.5
    assert two_jumps([ProbeCounts(1, 0), ProbeCounts(0, 1)]) is None


def test_a_rate_has_its_credible_bounds():
    """Beta(50, 2): mean 50/52; its 2.5 and 97.5 percentiles are 0.8955 and 0.9952 (by numerical integration elsewhere)."""
    told = rate(ProbeCounts(49, 1))
    assert told.mean == pytest.approx(50 / 52)
    assert told.least == pytest.approx(0.896, abs=0.003) and told.most == pytest.approx(0.995, abs=0.002)
    unknown = rate(ProbeCounts())
    assert (unknown.least, unknown.most) == (pytest.approx(0.025, abs=0.001), pytest.approx(0.975, abs=0.001))

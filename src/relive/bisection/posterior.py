"""Where a rate changes, and which commit tells most about it: pure, after the manner of git_bayesect.

A probe of a commit is bad with one unknown rate before the jump and with another from it on. Each rate has a Beta prior, so
that what was seen on a side needs to be known by its counts only (Beta-binomial), and the posterior over jumps follows from
logarithms of Beta functions. The next probe is of the commit with the greatest expected information, that is, by which the
entropy of that posterior falls most on the average.

1. Before the jump failures are rare: Beta(0.5, 4.5), mean 0.1. From it on nothing is known of the rate: Beta(1, 1).
2. Against a jump stands that there is none, that is, one rate for all (Beta(1, 1)); both are as probable at first.
3. Two jumps are weighed against one by the same means, all three rates being Beta(1, 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, log

__all__ = [
    "ProbeCounts",
    "Rate",
    "TwoJumps",
    "credible",
    "jump_posterior",
    "most_telling",
    "no_jump",
    "rate",
    "two_jumps",
]

_BEFORE, _AFTER, _ANY = (0.5, 4.5), (1.0, 1.0), (1.0, 1.0)


@dataclass(frozen=True, slots=True)
class ProbeCounts:
    """Probes of one commit, or of several."""

    bad: int = 0
    good: int = 0

    def __add__(self, other: ProbeCounts) -> ProbeCounts:
        return ProbeCounts(self.bad + other.bad, self.good + other.good)


@dataclass(frozen=True, slots=True)
class Rate:
    """Of bad probes: its mean, and the bounds between which it lies with a probability of 95 %."""

    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class TwoJumps:
    """How probable two jumps are beside one, and the likeliest pair: the rate changes at ``first`` and at ``second``."""

    probability: float
    first: int
    second: int


def jump_posterior(counts: Sequence[ProbeCounts]) -> list[float]:
    """For each commit the probability that the jump is right before it, given that there is one; that of the first is 0.

    Args:
        counts: of each commit, in their order; at least two.
    """
    return _normalized(_jump_logs(counts))


def no_jump(counts: Sequence[ProbeCounts]) -> float:
    """The probability that there is none."""
    one_rate = _log_evidence(_sum(counts), _ANY)
    logs = _jump_logs(counts)[1:]
    greatest = max(logs)
    jump = greatest + log(sum(exp(one - greatest) for one in logs) / len(logs))
    return 1 / (1 + exp(min(700.0, jump - one_rate)))


def most_telling(
    counts: Sequence[ProbeCounts], posterior: Sequence[float], left_out: frozenset[int]
) -> int | None:
    """The commit whose next probe is expected to tell most about where the jump is; None where all are left out."""
    total, before = _sum(counts), ProbeCounts()
    rates = []  # of (before, from it on) for a jump right before each commit
    for one in counts:
        rates.append(
            (
                _mean(before, _BEFORE),
                _mean(ProbeCounts(total.bad - before.bad, total.good - before.good), _AFTER),
            )
        )
        before = before + one
    # With the jump before commit ``at`` or earlier, ``at`` lies behind it: sums over jumps grow as ``at`` moves on.
    bad = sum(weight * low for weight, (low, _) in zip(posterior, rates, strict=True))
    unsure = sum(weight * _entropy(low) for weight, (low, _) in zip(posterior, rates, strict=True))
    best, most = None, -1.0
    for at, (weight, (low, high)) in enumerate(zip(posterior, rates, strict=True)):
        bad += weight * (high - low)
        unsure += weight * (_entropy(high) - _entropy(low))
        gain = _entropy(min(1.0, max(0.0, bad))) - unsure
        if at not in left_out and gain > most + 1e-12:
            best, most = at, gain
    return best


def two_jumps(counts: Sequence[ProbeCounts]) -> TwoJumps | None:
    """What speaks for a second jump; None with fewer than three commits that were probed."""
    probed = [at for at, one in enumerate(counts) if one.bad + one.good]
    if len(probed) < 3:
        return None
    sums = [ProbeCounts()]
    for at in probed:
        sums.append(sums[-1] + counts[at])

    def evidence(begin: int, end: int) -> float:
        part = ProbeCounts(sums[end].bad - sums[begin].bad, sums[end].good - sums[begin].good)
        return _log_evidence(part, _ANY)

    count = len(probed)
    single = [evidence(0, at) + evidence(at, count) for at in range(1, count)]
    double = {
        (one, other): evidence(0, one) + evidence(one, other) + evidence(other, count)
        for one in range(1, count - 1)
        for other in range(one + 1, count)
    }
    greatest = max(*single, *double.values())
    for_one = sum(exp(one - greatest) for one in single) / len(single)
    for_two = sum(exp(one - greatest) for one in double.values()) / len(double)
    first, second = max(double, key=lambda pair: double[pair])
    return TwoJumps(for_two / (for_one + for_two), probed[first], probed[second])


def credible(posterior: Sequence[float], probability: float) -> list[int]:
    """The fewest commits that hold so much of the posterior, in their order."""
    chosen, held = [], 0.0
    for at in sorted(range(len(posterior)), key=lambda one: -posterior[one]):
        if held >= probability:
            break
        chosen.append(at)
        held += posterior[at]
    return sorted(chosen)


def rate(counts: ProbeCounts) -> Rate:
    """What is known of a rate that nothing was known of before: Beta(1, 1) and the counts."""
    a, b = counts.bad + _ANY[0], counts.good + _ANY[1]
    steps = 2000
    points = [(at + 0.5) / steps for at in range(steps)]
    logs = [(a - 1) * log(one) + (b - 1) * log(1 - one) for one in points]
    greatest = max(logs)
    weights = [exp(one - greatest) for one in logs]
    return Rate(a / (a + b), _quantile(points, weights, 0.025), _quantile(points, weights, 0.975))


def _quantile(points: Sequence[float], weights: Sequence[float], wanted: float) -> float:
    left = wanted * sum(weights)
    for point, weight in zip(points, weights, strict=True):
        left -= weight
        if left <= 0:
            return point
    return points[-1]


def _jump_logs(counts: Sequence[ProbeCounts]) -> list[float]:
    """Logarithms of what the counts weigh for a jump right before each commit; minus infinity for the first."""
    total, before = _sum(counts), ProbeCounts()
    logs = []
    for one in counts:
        after = ProbeCounts(total.bad - before.bad, total.good - before.good)
        logs.append(_log_evidence(before, _BEFORE) + _log_evidence(after, _AFTER))
        before = before + one
    return [float("-inf"), *logs[1:]]


def _log_evidence(counts: ProbeCounts, prior: tuple[float, float]) -> float:
    a, b = prior
    return _log_beta(a + counts.bad, b + counts.good) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def _mean(counts: ProbeCounts, prior: tuple[float, float]) -> float:
    return (prior[0] + counts.bad) / (sum(prior) + counts.bad + counts.good)


def _entropy(probability: float) -> float:
    return sum(-one * log(one) for one in (probability, 1 - probability) if one > 0)


def _normalized(logs: Sequence[float]) -> list[float]:
    greatest = max(logs)
    weights = [exp(one - greatest) for one in logs]
    total = sum(weights)
    return [one / total for one in weights]


def _sum(counts: Sequence[ProbeCounts]) -> ProbeCounts:
    return ProbeCounts(sum(one.bad for one in counts), sum(one.good for one in counts))

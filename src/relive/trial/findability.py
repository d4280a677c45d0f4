"""Is it really fixed? The probability that a failure is still there after so many clean runs, and how many are still needed.

Of the unchanged code ``failed`` of ``ran`` runs failed. Its rate of failure p is not known; before any run each p is as likely
as any other (a uniform prior, Beta(1, 1)), so after them p has the distribution Beta(1 + failed, 1 + ran - failed). Had the fix
changed nothing, all of k runs would be clean with the probability

    E[(1 - p)^k] = B(1 + failed, 1 + ran - failed + k) / B(1 + failed, 1 + ran - failed)

and of a fix that works they are clean anyway. Before any run it is as likely that a fix works as that it does not; by Bayes' rule
that makes the probability that the failure is still there L / (1 + L), L being the above. One failing run makes it 1.
"""

from __future__ import annotations

from math import exp, lgamma

__all__ = ["ENOUGH", "PRIOR", "more_clean_runs", "still_there"]

ENOUGH = 0.05
PRIOR = (
    "before any run, a fix is as likely to work as not, and each rate of failure of the unchanged code is as likely "
    "as any other"
)
_MOST = 1_000_000


def still_there(*, failed: int, ran: int, clean: int, failing: int = 0) -> float:
    """The probability that a fix has not removed the failure.

    Args:
        failed, ran: of the unchanged code. clean, failing: runs with the fix.
    """
    if failing:
        return 1.0
    likelihood = exp(
        _log_beta(1 + failed, 1 + ran - failed + clean) - _log_beta(1 + failed, 1 + ran - failed)
    )
    return likelihood / (1 + likelihood)


def more_clean_runs(*, failed: int, ran: int, clean: int) -> int:
    """How many more until the failure is there with a probability under ``ENOUGH``; at most a million."""
    least, most = 0, 1
    while most < _MOST and still_there(failed=failed, ran=ran, clean=clean + most) >= ENOUGH:
        least, most = most, most * 2
    if still_there(failed=failed, ran=ran, clean=clean) < ENOUGH:
        return 0
    while least + 1 < most:  # at ``most`` it is enough, at ``least`` not
        middle = (least + most) // 2
        if still_there(failed=failed, ran=ran, clean=clean + middle) >= ENOUGH:
            least = middle
        else:
            most = middle
    return most


def _log_beta(one: float, other: float) -> float:
    return lgamma(one) + lgamma(other) - lgamma(one + other)

"""Which commits to keep: the newest, then one a minute, an hour, a day, a month. A pure decision.

Buckets are minutes, hours, days and months in UTC. Only those count in which there is a commit, and of each the newest commit
is kept. So no clock is asked: a service that stood still for a year, or a clock that jumped, costs no commit. And since each
bucket lies within one of the next kind, what is thinned as it comes in ends as what is thinned once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from relive.config import Settings
from relive.model.commit import CommitId

__all__ = ["Dated", "Retention", "bucket_of_month", "why_kept"]

_MINUTE = 60 * 1_000_000_000  # [ns]
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR


class Dated(Protocol):
    """What is asked of a commit."""

    @property
    def id(self) -> CommitId:
        """Its id."""

    @property
    def taken_wall_ns(self) -> int:
        """When it was taken; a manifest from elsewhere may hold any number."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How many to keep of each kind: the ``newest`` (at least 1), and one of each of so many minutes, hours, days, months."""

    newest: int
    minutes: int = 0
    hours: int = 0
    days: int = 0
    months: int = 0

    @classmethod
    def configured(cls, settings: Settings) -> Retention:
        """As the configuration says."""
        return cls(
            settings.keep,
            settings.keep_minutes,
            settings.keep_hours,
            settings.keep_days,
            settings.keep_months,
        )


def why_kept(
    commits: Sequence[Dated], retention: Retention, pinned: Collection[CommitId]
) -> dict[CommitId, list[str]]:
    """The commits to keep, each with all reasons: ``newest``, ``minute``, ``hour``, ``day``, ``month``, ``pinned``.

    Args:
        commits: of one target. Of those taken at the same time, the first counts as the newest.
    """
    newest_first = sorted(commits, key=lambda commit: -commit.taken_wall_ns)
    reasons: dict[CommitId, list[str]] = {}
    for commit in newest_first[: max(1, retention.newest)]:
        reasons.setdefault(commit.id, []).append("newest")
    for reason, count, bucket in _kinds(retention):
        seen: set[int] = set()
        for commit in newest_first:
            number = bucket(commit.taken_wall_ns)
            if len(seen) < count and number not in seen:
                seen.add(number)
                reasons.setdefault(commit.id, []).append(reason)
    for commit in newest_first:
        if commit.id in pinned:
            reasons.setdefault(commit.id, []).append("pinned")
    return reasons


def _kinds(retention: Retention) -> tuple[tuple[str, int, Callable[[int], int]], ...]:
    return (
        ("minute", retention.minutes, lambda wall_ns: wall_ns // _MINUTE),
        ("hour", retention.hours, lambda wall_ns: wall_ns // _HOUR),
        ("day", retention.days, lambda wall_ns: wall_ns // _DAY),
        ("month", retention.months, bucket_of_month),
    )


def bucket_of_month(wall_ns: int) -> int:
    """The number of the month, in UTC, of any time whatever; ``datetime`` knows the years 1 to 9999 only.

    From days to months as in https://howardhinnant.github.io/date_algorithms.html, with years that begin in March.
    """
    days = wall_ns // _DAY + 719_468  # since 1 March of the year 0
    era, day = divmod(days, 146_097)  # 400 years
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    return (era * 400 + year) * 12 + (5 * day + 2) // 153

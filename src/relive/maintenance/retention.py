"""Which commits to keep: the newest, one a minute, an hour, a day, a month, those that lead to a failure. A pure decision.

Buckets are minutes, hours, days and months in UTC. Only those count in which there is a commit, and of each the newest commit
is kept. So no clock is asked: a service that stood still for a year, or a clock that jumped, costs no commit. And since each
bucket lies within one of the next kind, what is thinned as it comes in ends as what is thinned once.

A failure of the night is looked into in the morning, when its minutes have long become hours. So what came before it is kept as if
the failure were now: then `bisect` still finds the moment at which the state went bad. And the first commit of the newest life is
kept: it is the good end of such a search, where nobody knows another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from relive.config import Settings
from relive.model.commit import CommitId

__all__ = ["Dated", "Retention", "bucket_of_month", "why_kept"]

_MINUTE = 60 * 1_000_000_000  # [ns]
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_MOST_FAILURES = 32  # so that a service that fails in ever new ways does not keep all its commits


class Dated(Protocol):
    """What is asked of a commit."""

    @property
    def id(self) -> CommitId:
        """Its id."""

    @property
    def life(self) -> str | None:
        """The life of its capsule; None for what has none."""

    @property
    def taken_wall_ns(self) -> int:
        """When it was taken; a manifest from elsewhere may hold any number."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How many to keep of each kind: the ``newest`` (at least 1), and one of each of so many minutes, hours, days, months.

    Attributes:
        before_incident: of each of the last 32 incidents, so many commits before its failure, and one of each of as many minutes.
    """

    newest: int
    minutes: int = 0
    hours: int = 0
    days: int = 0
    months: int = 0
    before_incident: int = 0

    @classmethod
    def configured(cls, settings: Settings) -> Retention:
        """As the configuration says."""
        return cls(
            settings.keep,
            settings.keep_minutes,
            settings.keep_hours,
            settings.keep_days,
            settings.keep_months,
            settings.keep_before_incident,
        )


def why_kept(
    commits: Sequence[Dated], retention: Retention, failed: Collection[CommitId]
) -> dict[CommitId, list[str]]:
    """The commits to keep, each with all reasons: ``newest``, ``minute``, ``hour``, ``day``, ``month``, ``start``,
    ``incident``, ``pinned``.

    Args:
        commits: of one target. Of those taken at the same time, the first counts as the newest.
        failed: those to which incidents refer. They are ``pinned``, and what led to them is kept with them (``incident``).
    """
    newest_first = sorted(commits, key=lambda commit: -commit.taken_wall_ns)
    reasons: dict[CommitId, list[str]] = {}
    for commit in newest_first[: max(1, retention.newest)]:
        reasons.setdefault(commit.id, []).append("newest")
    for reason, count, bucket in _kinds(retention):
        for commit in _newest_of_each(newest_first, count, bucket):
            reasons.setdefault(commit.id, []).append(reason)
    for one in _first_of_newest_life(newest_first):
        reasons.setdefault(one, []).append("start")
    for one in _leading_to(newest_first, retention.before_incident, failed):
        reasons.setdefault(one, []).append("incident")
    for commit in newest_first:
        if commit.id in failed:
            reasons.setdefault(commit.id, []).append("pinned")
    return reasons


def _newest_of_each(
    newest_first: Sequence[Dated], count: int, bucket: Callable[[int], int]
) -> Iterator[Dated]:
    """The newest commit of each of the first ``count`` buckets in which there is one."""
    seen: set[int] = set()
    for commit in newest_first:
        number = bucket(commit.taken_wall_ns)
        if number not in seen:
            if len(seen) >= count:
                return
            seen.add(number)
            yield commit


def _first_of_newest_life(newest_first: Sequence[Dated]) -> list[CommitId]:
    """One commit, or none where the newest has no life."""
    life = newest_first[0].life if newest_first else None
    return [commit.id for commit in newest_first if commit.life == life is not None][-1:]


def _leading_to(
    newest_first: Sequence[Dated], count: int, failed: Collection[CommitId]
) -> dict[CommitId, None]:
    """What is kept since it was taken before one of the last failures: the newest ones, and one a minute."""
    found: dict[CommitId, None] = {}
    places = (number for number, commit in enumerate(newest_first) if commit.id in failed)
    for place in islice(places, _MOST_FAILURES):
        before = newest_first[place + 1 :]
        for commit in (*before[:count], *_newest_of_each(before, count, _minute)):
            found[commit.id] = None
    return found


def _minute(wall_ns: int) -> int:
    return wall_ns // _MINUTE


def _kinds(retention: Retention) -> tuple[tuple[str, int, Callable[[int], int]], ...]:
    return (
        ("minute", retention.minutes, _minute),
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

"""What is kept, as a pure decision: properties that hold for any times and numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from relive.config import load_settings
from relive.maintenance.retention import Retention, bucket_of_month, why_kept
from relive.model.commit import CommitId

SECOND = 1_000_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND


@dataclass(frozen=True)
class One:
    id: CommitId
    taken_wall_ns: int
    life: str | None = None


def made(times: list[int]) -> list[One]:
    """Each twelve hours are a life of their own."""
    return [
        One(CommitId(f"{number:064x}"), time, f"life {time // (12 * HOUR)}")
        for number, time in enumerate(times)
    ]


# Close together, near the edges of buckets, far apart, and what only a hostile manifest holds.
times = st.one_of(
    st.integers(0, 3 * HOUR),
    st.builds(lambda hours, off: hours * HOUR + off, st.integers(0, 24 * 800), st.integers(-2, 2)),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
many = st.lists(times, max_size=60).map(made)
numbers = st.integers(0, 6)
retentions = st.builds(Retention, st.integers(0, 4), numbers, numbers, numbers, numbers, numbers)
pins = st.sets(st.integers(0, 70).map(lambda number: CommitId(f"{number:064x}")), max_size=5)


@given(many, retentions, pins)
def test_the_newest_and_the_pinned_are_always_kept_and_nothing_that_is_not_there(commits, retention, pinned):
    kept = why_kept(commits, retention, pinned)
    there = {one.id for one in commits}
    assert set(kept) <= there
    assert pinned & there <= set(kept)
    if commits:
        assert max(commits, key=lambda one: one.taken_wall_ns).id in kept


@given(many, retentions, pins)
def test_doing_it_again_drops_nothing_more(commits, retention, pinned):
    kept = why_kept(commits, retention, pinned)
    left = [one for one in commits if one.id in kept]
    assert set(why_kept(left, retention, pinned)) == set(kept)


@given(
    many,
    retentions,
    pins,
    st.sampled_from(["newest", "minutes", "hours", "days", "months", "before_incident"]),
)
def test_a_larger_number_keeps_all_that_a_smaller_one_did(commits, retention, pinned, which):
    larger = replace(retention, **{which: getattr(retention, which) + 1})
    assert set(why_kept(commits, retention, pinned)) <= set(why_kept(commits, larger, pinned))


@given(many, retentions)
def test_each_number_keeps_so_many_at_most_and_one_of_a_bucket(commits, retention):
    kept = why_kept(commits, retention, set())
    reasons = {
        "newest": (max(1, retention.newest), lambda time: time),
        "minute": (retention.minutes, lambda time: time // MINUTE),
        "hour": (retention.hours, lambda time: time // HOUR),
        "day": (retention.days, lambda time: time // DAY),
        "month": (retention.months, bucket_of_month),
    }
    for reason, (most, bucket) in reasons.items():
        found = [bucket(one.taken_wall_ns) for one in commits if reason in kept.get(one.id, ())]
        assert len(found) <= most
        assert reason == "newest" or len(set(found)) == len(found)


@given(st.lists(times, max_size=40), retentions, st.integers(1, 7))
def test_thinned_as_they_come_in_is_as_thinned_once(given_times, retention, every):
    """Else it would matter when the agent looks: a commit could be gone before its hour is over."""
    commits = made(sorted(given_times))
    left: list[One] = []
    for number, one in enumerate(commits):
        left.insert(0, one)
        if number % every == 0:
            kept = why_kept(left, retention, set())
            left = [one for one in left if one.id in kept]
    newest_first = commits[::-1]
    assert set(why_kept(left, retention, set())) == set(why_kept(newest_first, retention, set()))


def test_what_led_to_a_failure_of_the_night_is_there_in_the_morning():
    """A commit every 5 s, a failure at 3, six hours of commits after it: else one an hour would be left before it."""
    morning = 1_700_000_000 * SECOND
    commits = made([morning - seconds * SECOND for seconds in range(0, 8 * 3600, 5)])
    failed = next(one for one in commits if one.taken_wall_ns <= morning - 6 * HOUR)
    kept = why_kept(commits, Retention(32, 60, 24, before_incident=16), {failed.id})
    ago = [
        (failed.taken_wall_ns - one.taken_wall_ns) // SECOND
        for one in commits
        if "incident" in kept.get(one.id, ())
    ]
    assert ago[:16] == list(range(5, 85, 5))
    minutes = {(failed.taken_wall_ns - seconds * SECOND) // MINUTE for seconds in ago}
    assert len(minutes) == 16
    assert "incident" not in {
        reason for reasons in why_kept(commits, Retention(32), set()).values() for reason in reasons
    }


@given(st.integers(33, 80))
def test_ever_new_failures_do_not_keep_all_there_is(count):
    """Each fourth commit is followed by another failure; only the last 32 have what led to them kept."""
    commits = made([-number * MINUTE for number in range(4 * count)])
    failed = {one.id for one in commits[1::4]}
    kept = why_kept(commits, Retention(1, before_incident=1), failed)
    assert sum("incident" in reasons for reasons in kept.values()) == 32


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)))
@example(datetime(2000, 2, 29))
@example(datetime(1900, 2, 28, 23, 59))
def test_months_are_those_of_the_calendar(moment):
    def number(year: int, month: int, day: int) -> int:
        seconds = (datetime(year, month, day, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400
        return bucket_of_month(seconds * SECOND)

    first = number(moment.year, moment.month, 1)
    assert number(moment.year, moment.month, moment.day) == first
    assert first == number(2000, 1, 1) + (moment.year - 2000) * 12 + moment.month - 1


def test_a_service_that_was_committed_for_a_year_leaves_minutes_hours_days_and_months():
    """As the issue asks: minutes of the last hour, hours of the last day, days of the last week, then months."""
    end = 1_700_000_000 * SECOND
    ago = [*range(0, 7200, 15), *range(7200, 365 * 86_400, 600)]
    commits = [One(CommitId(f"{seconds:064x}"), end - seconds * SECOND) for seconds in ago]
    kept = why_kept(commits, Retention(1, 60, 24, 7, 12), set())
    ages = sorted((end - one.taken_wall_ns) // SECOND for one in commits if one.id in kept)
    assert len(ages) <= 60 + 24 + 7 + 12
    for age, older in pairwise(ages):
        widest = (
            60 + 15
            if older < 3540
            else 2 * 3600
            if older < 23 * 3600
            else 2 * 86_400
            if older < 6 * 86_400
            else 62 * 86_400
        )
        assert older - age <= widest
    assert ages[-1] >= 300 * 86_400


@given(st.lists(times, min_size=1, max_size=40), retentions)
def test_the_first_commit_since_the_last_start_is_there_whatever_came_after_it(given_times, retention):
    commits = made(sorted(given_times))
    left: list[One] = []
    for one in commits:
        left.append(one)
        kept = why_kept(left, retention, set())
        left = [one for one in left if one.id in kept]
    first = next(one for one in commits if one.life == commits[-1].life)
    assert first.taken_wall_ns in {one.taken_wall_ns for one in left if one.life == first.life}
    assert sum("start" in reasons for reasons in kept.values()) == 1


def test_what_has_no_life_has_no_start():
    commits = [One(CommitId(f"{number:064x}"), number) for number in range(9)]
    assert list(why_kept(commits, Retention(1), set())) == [commits[-1].id]


def test_the_configuration_says_how_many(tmp_path):
    settings = load_settings(home=tmp_path, keep=3, keep_minutes=4, keep_hours=5, keep_days=6, keep_months=7)
    assert Retention.configured(settings) == Retention(3, 4, 5, 6, 7, before_incident=16)

"""A schedule follows from its seed, wherever it is asked; and how many clean runs say how much."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.intervention.schedules import (
    NICEST,
    Schedule,
    clean_runs_wanted,
    given_schedule,
    held,
    parse_delay,
    rate_below,
    schedule_of,
)
from relive.recording.exchanges import Exchange
from relive.replay.plan import ReplayPlan, ReplayStep

PLACES = [f"5:{request}:1:{number}" for request in range(20) for number in range(1, 6)]


def test_a_seed_means_the_same_schedule_each_time():
    for seed in (1, 2, 99):
        assert schedule_of(seed) == schedule_of(seed)
        assert list(map(schedule_of(seed).delay, PLACES)) == list(map(schedule_of(seed).delay, PLACES))


def test_seeds_differ_and_all_that_can_be_varied_is():
    schedules = [schedule_of(seed) for seed in range(1, 101)]
    assert len({(one.rate, one.most_ms) for one in schedules}) == 9
    assert len({one.switch_interval for one in schedules}) == 4
    assert {one.priorities for one in schedules} == {one.one_processor for one in schedules} == {True, False}
    assert len({tuple(map(one.delay, PLACES)) for one in schedules}) == 100


def test_odd_seeds_delay_only_what_is_near_where_something_is():
    near = frozenset({"5:3", "request:3"})
    assert schedule_of(2, near) == schedule_of(2)
    odd = [schedule_of(seed, near) for seed in range(1, 60, 2)]
    delayed = {place for one in odd for place in [*PLACES, "request:3", "request:30"] if one.delay(place)}
    assert delayed == {*(place for place in PLACES if place.startswith("5:3:")), "request:3"}
    assert max(one.delay("request:3") for one in odd) > 250
    assert "of related requests" in odd[0].words and odd[0].question()["within"] == ["5:3", "request:3"]
    assert given_schedule(7, [], near) == schedule_of(7, near)


def test_delays_are_as_frequent_and_as_long_as_the_schedule_says():
    schedule = Schedule(7, rate=0.5, most_ms=50.0)
    delays = [schedule.delay(f"5:1:1:{number}") for number in range(1000)]
    assert 400 < sum(map(bool, delays)) < 600
    assert 45 < max(delays) <= 50
    assert {schedule.nice(rank) for rank in range(9)} == {0}
    assert len({Schedule(7, priorities=True).nice(rank) for rank in range(99)}) > 10
    assert max(Schedule(7, priorities=True).nice(rank) for rank in range(999)) == NICEST


def test_delays_alone_are_without_what_else_a_seed_varies():
    schedule = Schedule(7, rate=0.5, most_ms=50.0, switch_interval=0.05, priorities=True, one_processor=True)
    alone = schedule.delaying({"request:3": 5.0}, only=True)
    assert (alone.switch_interval, alone.priorities, alone.one_processor) == (None, False, False)
    assert (alone.delay("request:3"), alone.delay("request:4")) == (5.0, 0.0)
    assert alone.question()["delays"] == {"request:3": 5.0} and "seed" not in alone.question()
    assert schedule.delaying({}).priorities and schedule.question()["seed"] == 7
    assert (alone.words, schedule.delaying({}).words.partition(",")[0]) == ("1 delay", "0 delays")


def exchange(number: int) -> Exchange:
    return Exchange(
        number=number,
        connection=number,
        request_head=b"GET / HTTP/1.1\r\n\r\n",
        started_seq=number,
        started_mono_ns=number,
        started_wall_ns=number,
    )


def test_requests_are_held_back_but_for_those_that_the_commit_holds():
    steps = [ReplayStep(exchange(number), number == 1, 0, frozenset()) for number in (1, 2, 3)]
    plan = ReplayPlan(steps, 3, 0)
    delayed, delays = held(plan, Schedule(0, delays={"request:1": 9.0, "request:3": 7.5}))
    assert [step.held_ms for step in delayed.steps] == [0.0, 0.0, 7.5]
    assert delays == {"request:3": 7.5}
    assert [step.held_ms for step in plan.steps] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("rate", "confidence", "runs"), [(0.05, 0.95, 58), (0.01, 0.95, 298), (0.5, 0.5, 1)])
def test_clean_runs_are_about_three_by_the_rate_at_95_percent(rate: float, confidence: float, runs: int):
    assert clean_runs_wanted(rate, confidence) == runs
    assert rate_below(runs, confidence) <= rate
    assert runs == 1 or rate_below(runs - 1, confidence) > rate


def test_what_is_typed_is_read():
    assert parse_delay("5:2:3345685958047722:1=109.4") == ("5:2:3345685958047722:1", 109.4)
    assert parse_delay("request:7=50") == ("request:7", 50.0)
    assert given_schedule(None, []) is None
    assert given_schedule(7, []) == schedule_of(7)
    assert given_schedule(None, ["request:7=50"]) == Schedule(0, delays={"request:7": 50.0})
    assert given_schedule(7, ["request:7=50"]) == schedule_of(7).delaying({"request:7": 50.0})


@pytest.mark.parametrize(
    "text", ["", "50", "request:7", "request:x=5", "5:2:1=5", "request:7=99999", "a=b", "request:7=-1"]
)
def test_what_is_no_delay_is_refused(text: str):
    with pytest.raises(UsageError, match="is no delay"):
        parse_delay(text)

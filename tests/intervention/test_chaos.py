"""The search for a schedule, on a service that is a function of its delays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from relive.intervention.chaos import ChaosSearch
from relive.intervention.living import Bounds
from relive.intervention.schedules import Schedule
from relive.intervention.varying import VariedRun
from relive.model.outcome import Run, Verdict, VerdictKind

PLACES = [f"5:{request}:1:{number}" for request in range(1, 5) for number in range(1, 5)]
RUN = Run(
    number=1,
    verdict=Verdict(kind=VerdictKind.REPRODUCED, difference="no branch", missing=["a server"]),
    outcome=None,
    forwarded=0,
    restore_us=None,
    seconds=0.1,
)

Rule = Callable[[Mapping[str, float]], bool | None]


@dataclass
class Service:
    """Fails as a rule of the delays that it meets says."""

    rule: Rule
    near: frozenset[str] = frozenset()
    bounds: Bounds = field(default_factory=lambda: Bounds(1000, 600))
    asked: list[Schedule | None] = field(default_factory=list)

    def live(self, schedule: Schedule | None) -> VariedRun:
        self.bounds.reserve_replays(1)
        self.asked.append(schedule)
        delays = {} if schedule is None else {place: schedule.delay(place) for place in PLACES}
        delays = {place: ms for place, ms in delays.items() if ms}
        return VariedRun(RUN, self.rule(delays), [], delays)


def searched(rule: Rule, wanted: int = 300, **more: Any) -> ChaosSearch:
    search = ChaosSearch(Service(rule, **more), wanted)
    search.run(1)
    return search


def test_where_it_fails_each_time_it_is_asked_from_an_earlier_commit_if_there_is_one():
    harmed, earlier = Service(lambda _: True), Service(lambda delays: delays.get("5:3:1:2", 0) > 20)
    search = ChaosSearch(harmed, 300, earlier=lambda: earlier)
    search.run(1)
    assert harmed.asked == [None, None] == earlier.asked[:2], "two plain replays of each"
    assert search.found is not None and search.usual is False and list(search.found.delays) == ["5:3:1:2"]
    alone = ChaosSearch(Service(lambda _: True), 3)
    alone.run(1)
    assert alone.found is None and alone.usual and alone.clean == 3


@pytest.mark.parametrize("is_turned", [False, True])
def test_one_delay_is_found_whichever_end_is_the_usual_one(is_turned: bool):
    search = searched(lambda delays: (delays.get("5:3:1:2", 0) > 20) is not is_turned)
    assert search.usual is is_turned
    found = search.found
    assert found is not None and found.narrowed and list(found.delays) == ["5:3:1:2"]
    assert found.delays["5:3:1:2"] > 20 and found.again == (3, 3)
    assert found.other.fails is not found.usual.fails
    assert found.usual.delays["5:3:1:2"] <= 20 < found.other.delays["5:3:1:2"], "a little less passes"
    assert search.tried == found.schedule.seed == search.clean + 1


def test_two_delays_that_are_both_needed_are_both_told():
    search = searched(lambda delays: {"5:1:1:1", "5:2:1:1"} <= delays.keys())
    assert search.found is not None
    assert sorted(search.found.delays) == ["5:1:1:1", "5:2:1:1"]
    assert len(search.found.usual.delays) == 1


def test_a_delay_that_is_just_long_enough_is_made_longer():
    calls = 0

    def rule(delays: Mapping[str, float]) -> bool:
        nonlocal calls
        calls += 1
        ms = delays.get("5:1:1:1", 0)
        return ms > 300 or (ms > 0 and calls % 2 == 0)

    found = searched(rule).found
    assert found is not None and found.again == (3, 3) and found.delays["5:1:1:1"] > 300


def test_what_no_schedule_changes_is_told_after_enough_of_them():
    search = searched(lambda _delays: False, wanted=58)
    assert (search.found, search.clean, search.tried, search.why_not) == (None, 58, 58, None)


def test_what_does_not_come_again_is_told_with_all_its_delays():
    first = True

    def rule(delays: Mapping[str, float]) -> bool:
        nonlocal first
        fails = first and bool(delays)
        first = first and not delays
        return fails

    search = searched(rule)
    found = search.found
    assert found is not None and not found.narrowed and found.again == (0, 3) and found.delays
    assert "could not be reduced" in (search.why_not or "")


def test_where_the_first_delays_do_not_do_it_again_those_of_another_run_of_the_seed_are_reduced():
    asked = 0

    def rule(delays: Mapping[str, float]) -> bool:
        nonlocal asked
        if not delays:
            return False
        asked += 1
        # The seed's first run by chance, then its delays four times in vain.
        return asked == 1 or (asked > 5 and delays.get("5:3:1:2", 0) > 20)

    for seed in range(1, 200):  # one whose own run has that delay
        asked = 0
        search = ChaosSearch(Service(rule), 300)
        search.run(seed)
        found = search.found
        assert found is not None and found.schedule.seed == seed
        if found.narrowed:
            assert list(found.delays) == ["5:3:1:2"] and found.again == (3, 3) and search.why_not is None
            return
    raise AssertionError("no such seed")


def test_bounds_end_it_with_what_is_known_by_then():
    search = searched(lambda _delays: False, bounds=Bounds(10, 600))
    assert search.clean == 8 and search.found is None and "10 replays were allowed" in (search.why_not or "")
    search = searched(bool, bounds=Bounds(4, 600))
    assert search.found is not None and search.found.again is None and search.why_not


def test_a_replay_that_says_nothing_is_no_end():
    search = searched(lambda _delays: None)
    assert search.found is None and search.why_not == "it could not be replayed: no branch"
    assert len(search.plain) == 2 and search.tried == 0
    search = searched(lambda delays: None if delays else False)
    assert search.tried == 3 and search.why_not


def test_what_fails_now_and_then_already_is_said():
    runs = iter([True, False])
    search = searched(lambda delays: next(runs, bool(delays)))
    assert "now and then" in (search.why_not or "") and not search.usual

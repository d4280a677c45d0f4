"""How often the clock may commit: expected pauses, the limit, the share."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from relive.agent.commits.pace import CommitPace, Footprint, footprint_of, recent_footprint
from relive.agent.commits.service_cost import ServiceCost
from relive.model.commit_policy import Policy, parse_every
from relive.model.pace import Brake

MB = 1_000_000


@dataclass
class World:
    """A service's memory, and the time [s]."""

    memory: int
    now: float = 100.0
    waited: float = 0.0
    used: float = 0.0

    def pace(self, policy: Policy) -> CommitPace:
        cost = ServiceCost(lambda: {1: self.waited}, lambda: self.used)
        return CommitPace(policy, lambda: Footprint(1, self.memory), lambda: cost, lambda: self.now)


def limited(every: str = "1s", limit: float = 1.0, share: float = 1.0, budget: str = "none") -> Policy:
    return parse_every(every).limited(limit, share, budget)


def test_without_pauses_a_large_service_is_held_and_a_small_one_is_not():
    assert not World(200 * MB).pace(limited()).state().is_held
    held = World(2_300 * MB).pace(limited()).state()
    assert held.is_held and held.expected_us > 1_000_000
    (note,) = held.notes("big")
    assert note.startswith(
        "Not committed by the clock: a commit would stop it for 1.8 s (estimated from 2.1 GiB"
    )
    assert "relive commit big" in note and "--pause-limit is 1.0 s" in note


def test_no_limit_holds_nothing():
    assert not World(9_000 * MB).pace(limited(limit=0)).state().is_held


def test_what_pauses_took_counts_more_than_what_is_usual():
    world = World(2_300 * MB)
    pace = world.pace(limited())
    pace.note(500_000)  # `relive commit`: this host is quick
    state = pace.state()
    assert not state.is_held and state.expected_us == 500_000
    world.memory *= 3
    assert pace.state().is_held and pace.state().expected_us == 1_500_000


def test_one_slow_pause_does_not_hold_what_is_mostly_quick():
    world = World(100 * MB)
    pace = world.pace(limited())
    for pause_us in (40_000, 3_000_000, 50_000):
        pace.note(pause_us)
    assert pace.state().expected_us == 40_000


def test_what_is_held_is_tried_again_when_its_pauses_are_long_ago():
    world = World(100 * MB)
    pace = world.pace(limited())
    pace.note(3_000_000)
    assert pace.state().is_held
    world.now += 601
    assert not pace.state().is_held


@pytest.mark.parametrize(("micro", "is_named"), [(None, False), (True, False), (False, True)])
def test_where_commits_are_full_ones_by_choice_the_way_out_is_named(micro: bool | None, is_named: bool):
    pace = World(100 * MB).pace(limited(every="1s").model_copy(update={"micro": micro}))
    pace.note(50_000)
    (note,) = pace.state().notes("shop")
    assert ("--micro" in note) == is_named


def test_where_the_host_has_no_micro_commits_the_way_out_is_none():
    said = {"micro": False, "full_because": "no userfaultfd"}
    pace = World(100 * MB).pace(limited(every="100ms").model_copy(update=said))
    pace.note(50_000)
    (note,) = pace.state().notes("shop")
    assert "--micro" not in note


def test_the_clock_waits_until_pauses_are_their_share():
    world = World(100 * MB)
    pace = world.pace(limited(every="1s"))
    assert pace.wait_left() == 0
    pace.note(50_000)
    assert pace.wait_left() == 5.0  # [s] 50 ms are 1 % of it
    world.now += 2
    assert pace.wait_left() == 3.0
    state = pace.state()
    assert state.actual_s == 5.0
    (note,) = state.notes("shop")
    assert (
        note
        == "Committed every 5.0 s, not every 1.0 s: each commit stops it for 50.0 ms, and --pause-share is 1 %."
    )


def test_nothing_is_said_where_all_is_as_asked_for():
    world = World(100 * MB)
    pace = world.pace(limited(every="30s"))
    pace.note(50_000)
    assert pace.state().notes("shop") == []
    free = world.pace(limited(every="1s", share=100))
    free.note(500_000)
    assert free.wait_left() == 0 and free.state().notes("shop") == []


def test_the_footprint_is_that_of_the_whole_tree():
    own = footprint_of(os.getpid())
    assert own.processes >= 1 and own.memory > 4 * MB


def test_a_footprint_is_looked_up_ten_times_a_second_at_most():
    asked, now = [], [5.0]

    def root() -> int:
        asked.append(now[0])
        return os.getpid()

    look = recent_footprint(root, clock=lambda: now[0])
    first = look()
    for now[0] in (5.05, 5.09, 5.101, 5.15):
        assert look().processes == first.processes
    assert asked == [5.0, 5.101]


def test_a_budget_of_bytes_makes_the_clock_slower_and_says_so():
    world = World(100 * MB)
    pace = world.pace(limited(every="1s", budget="3600MB/h"))
    begun = pace.begin()
    pace.stored(10 * MB)  # at 1 MB a second
    pace.durable(begun)
    assert pace.wait_left() == 10.0
    state = pace.state()
    assert state.slowed_by is Brake.BUDGET and state.actual_s == 10.0
    assert state.notes("shop") == [
        "Committed every 10.0 s, not every 1.0 s: the last commit of 9.5 MiB counts against --budget, which is 3.4 GiB/h."
    ]
    world.now += 10
    pace.begin()
    assert pace.state().left_out == {Brake.BUDGET: 9}
    assert pace.state().notes("shop")[0].endswith("Left out: 9 commits.")


def test_a_share_of_the_time_makes_the_clock_slower_by_what_commits_cost_the_service_and_says_so():
    world = World(100 * MB)
    pace = world.pace(limited(every="10ms", share=100, budget="5%"))
    begun = pace.begin()
    world.now += 0.02
    pace.note(600, pages=500)  # 1 ms with the first writes
    world.waited, world.used = 0.5, 0.013
    pace.stored(4000)
    pace.durable(begun)
    assert round(pace.wait_left(), 6) == 0.26  # 14 ms are 5 % of 280 ms, of which 20 ms are over
    state = pace.state()
    assert state.slowed_by is Brake.SERVICE and state.cost_us == 14_000
    assert state.notes("shop") == [
        "Committed every 280.0 ms, not every 10.0 ms: the last commit cost it 14.0 ms of its time, and --budget is 5 %."
    ]
    world.now += pace.wait_left()
    pace.begin()
    assert pace.state().left_out == {Brake.STORE: 1, Brake.SERVICE: 26}


def test_where_a_processor_is_free_a_share_of_the_time_holds_less_back():
    world = World(100 * MB)
    pace = world.pace(limited(every="10ms", share=100, budget="5%"))
    begun = pace.begin()
    world.now += 0.015
    pace.note(600, 0)
    world.used += 0.013
    pace.stored(4000)
    pace.durable(begun)
    assert pace.wait_left() == 0  # 600 us are 5 % of 12 ms; there is no rest on top


def test_commits_that_nobody_waited_for_are_paid_for_by_the_next():
    world = World(100 * MB)
    pace = world.pace(limited(every="10ms", share=100, budget="5%"))
    for _ in range(3):  # by hand, one behind the other
        pace.note(50_000)
        pace.stored(4000)
    assert pace.wait_left() == 3.0


def test_a_store_that_is_slower_than_the_clock_leaves_commits_out_and_is_left_alone_as_long():
    world = World(10 * MB)
    pace = world.pace(limited(every="10ms", share=100))
    for _ in range(2):
        begun = pace.begin()
        world.now += 0.0345
        pace.durable(begun)
        assert round(pace.wait_left(), 6) == 0.01
        world.now += pace.wait_left()
    state = pace.state()
    assert state.left_out == {Brake.STORE: 4} and state.slowed_by is Brake.STORE
    (note,) = state.notes("shop")
    assert note.startswith(
        "Committed every 44.5 ms, not every 10.0 ms: a commit takes 34.5 ms until it is durable"
    )


def test_one_that_failed_is_tried_again_before_the_next_is_due():
    world = World(10 * MB)
    pace = world.pace(limited(every="30s"))
    pace.begin()
    world.now += 1
    assert pace.wait_left() == 0


def test_the_reason_of_a_full_commit_is_said_until_one_is_none() -> None:
    pace = World(20 * MB).pace(limited())
    pace.note(1000, "its processes are others")
    (note,) = pace.state().notes("shop")
    assert note == "The last commit was a full one, not a micro-commit: its processes are others."
    pace.note(1000)
    assert pace.state().notes("shop") == []


def test_one_pause_that_was_longer_than_usual_is_told_as_what_the_clock_waits_for():
    """GIVEN micro-commits and one full one between them THEN nobody reads that each commit is waited for so long."""
    world = World(50 * MB)
    pace = world.pace(limited(every="10ms"))
    for pause_us in (5_000, 5_000, 200_000):
        world.now += 1
        pace.begin()
        pace.note(pause_us)
        pace.done()
    (note,) = pace.state().notes("web")
    assert note.startswith(
        "Committed every 20.0 s, not every 10.0 ms: the last commit stopped it for 200.0 ms,"
    )
    world.now += 20
    pace.begin()
    pace.note(5_000)
    pace.done()
    (note,) = pace.state().notes("web")
    assert "each commit stops it for" in note

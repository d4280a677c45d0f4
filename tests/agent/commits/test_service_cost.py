"""What commits cost a service: pauses, first writes, and waits for a processor that Relive used."""

from __future__ import annotations

import os
import time

import pytest

from relive.agent.commits.service_cost import (
    ServiceCost,
    is_contended,
    processor_time,
    thread_times,
    waited_for_processor,
)


class World:
    def __init__(self) -> None:
        self.waited: dict[int, float] = {7: 3.0}
        self.used = 5.0

    def cost(self) -> ServiceCost:
        return ServiceCost(lambda: dict(self.waited), lambda: self.used)


def test_pauses_and_first_writes_count_once() -> None:
    cost = World().cost()
    cost.note(1_000, 500)
    cost.note(2_000, 0)
    assert cost.take() == pytest.approx(0.0034)
    assert cost.take() == 0.0


def test_processors_are_contended_for_where_a_thread_waits_for_one_a_good_part_of_its_time() -> None:
    assert not is_contended((1.0, 5.0), (1.008, 5.002))
    assert is_contended((1.0, 5.0), (1.008, 5.003))


def test_what_a_thread_has_run_is_its_own_time() -> None:
    ran, _ = thread_times()
    until = time.thread_time() + 0.005
    while time.thread_time() < until:
        pass
    assert thread_times()[0] - ran >= 0.004


@pytest.mark.parametrize(
    ("waited", "used", "expected"),
    [
        ({7: 3.5}, 5.2, 0.2),  # it waited for others, too
        ({7: 3.1}, 5.2, 0.1),  # a processor was free for the rest
        ({7: 3.1, 8: 0.3}, 6.0, 0.4),  # a thread that is new has waited since it began
        ({8: 0.3}, 6.0, 0.3),  # one that has ended takes nothing away
        ({7: 3.0}, 6.0, 0.0),
        ({7: 3.9}, 4.0, 0.0),  # the helper is another
    ],
)
def test_a_wait_counts_as_far_as_relive_used_a_processor(
    waited: dict[int, float], used: float, expected: float
) -> None:
    world = World()
    cost = world.cost()
    world.waited, world.used = waited, used
    assert cost.take() == pytest.approx(expected)
    assert cost.take() == 0.0


def test_the_kernel_tells_both() -> None:
    waited = waited_for_processor(os.getpid())
    assert os.getpid() in waited and min(waited.values()) >= 0
    used, own = processor_time(os.getpid()), time.process_time()
    assert used > own > 0
    assert processor_time(None) < used
    assert waited_for_processor(2**22 + 1) == {}

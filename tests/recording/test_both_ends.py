"""Of more events than are held, the first and the last stay."""

from __future__ import annotations

import pytest

from relive.recording.both_ends import BothEnds
from relive.recording.events import Event, EventKind


def event(number: int) -> Event:
    return Event(number, number, number, EventKind.CLOCK, 0, 1, b"", {})


@pytest.mark.parametrize(("count", "most"), [(0, 10), (9, 10), (10, 10), (11, 10), (1000, 10), (5, 2)])
def test_the_first_and_the_last_are_held(count, most):
    ends = BothEnds(most)
    events = [event(number) for number in range(count)]
    for one in events:
        ends.add(one)
    held = ends.held
    assert len(held) == min(count, most)
    assert ends.left_out == count - len(held)
    assert held[:1] == events[:1] and held[-1:] == events[-1:]
    assert held == sorted(held, key=lambda one: one.seq)
    if count <= most:
        assert held == events

"""Which ends of processes the agent's log tells."""

from __future__ import annotations

import signal

import pytest

from relive.agent.failures.watch import is_worth_a_line
from relive.signals.messages import Exited


@pytest.mark.parametrize(
    ("pid", "status", "is_told"),
    [(70, 0, False), (70, 1 << 8, True), (70, signal.SIGKILL, True), (70, None, True), (2, 0, True)],
)
def test_of_those_that_end_well_only_the_first_is_told(pid: int, status: int | None, is_told: bool) -> None:
    assert is_worth_a_line(Exited(pid=pid, status=status), (2, None)) is is_told

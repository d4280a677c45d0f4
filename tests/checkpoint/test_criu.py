"""When CRIU is given up, and what is heard of one that somebody has ended."""

from __future__ import annotations

import signal
import subprocess

import pytest

from real.harness import TOOLS
from relive.checkpoint import criu
from relive.checkpoint.criu import CriuDied, CriuProcess, CriuTools, Deadline


class Clock:
    """Time that passes when the test says so."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(criu, "time", found)
    return found


def test_a_plain_limit_passes_whatever_happens(clock: Clock) -> None:
    deadline = Deadline(20.0)
    clock.now += 19.5
    assert not deadline.has_passed()
    assert deadline.wait == pytest.approx(0.5)
    clock.now += 0.5
    assert deadline.has_passed()


def test_as_long_as_something_moves_nobody_gives_up(clock: Clock) -> None:
    """A restore that brings a file of 20 GB into the branch."""
    moved, told = [0], []
    deadline = Deadline(20.0, lambda: list(moved), lambda: told.append(clock.now))
    for _ in range(100):
        clock.now += 15.0
        moved[0] += 1
        assert not deadline.has_passed()
    assert len(told) == 100
    assert deadline.wait < 20.0  # else what has moved since would be noticed too late


def test_what_stands_still_is_given_up_so_long_after_its_last_move(clock: Clock) -> None:
    moved = [0]
    deadline = Deadline(20.0, lambda: list(moved))
    clock.now += 19.0
    moved[0] += 1
    assert not deadline.has_passed()
    clock.now += 19.0
    assert not deadline.has_passed()
    clock.now += 1.0
    assert deadline.has_passed()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_one_that_was_killed_before_it_was_asked_is_told_as_that(number: int) -> None:
    """The question met a closed line, and the restore failed of a broken pipe for want of namespaces."""

    def killed(_keep: list[int]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "1000"])
        process.send_signal(number)
        return process

    with CriuProcess(CriuTools(TOOLS), fork=killed) as criu, pytest.raises(CriuDied) as died:
        criu.wait_until_loaded()
    assert died.value.status == -number

"""Probes in forked workers: what is found is as if they came one after the other, whatever was asked ahead."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from relive.bisection.finding import find_jumps
from relive.bisection.judgement import Judged, Judgement
from relive.errors import UsageError
from relive.operations.probing_ahead import ProbesAhead
from support.waiting import eventually

GOOD, BAD, _, FAILED = Judgement


def nothing() -> None:
    """Nothing is cleared up."""


def seen(at: int) -> Judged:
    return Judged(judgement=BAD if at >= 33 else GOOD, seen=f"commit {at}")


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_same_probes_are_made_in_the_same_order(jobs: int) -> None:
    wanted = find_jumps(50, seen, further=3, most=200)
    with ProbesAhead(seen, jobs, nothing) as probes:
        found = find_jumps(50, probes, further=3, most=200, foresee=probes.foresee)
    assert found == wanted


def noted(directory: Path) -> Callable[[int], Judged]:
    """A predicate that writes down which commits it was asked of, fails at 20, is wrong at 25, and never ends at 12."""

    def ask(at: int) -> Judged:
        if at == 12:
            try:
                (directory / "12").touch()
                while True:  # a signal that comes just before pause(2) would not end that
                    time.sleep(0.01)
            finally:
                (directory / "given up").touch()
        (directory / str(at)).touch()
        if at == 25:
            raise UsageError("the expression cannot be read")
        if at == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return seen(at)

    return ask


def test_what_nobody_wanted_harms_nobody(tmp_path: Path) -> None:
    """GIVEN probes ahead that hang, raise and are killed; WHEN another is wanted, and the end comes; THEN none of them is told."""
    with ProbesAhead(noted(tmp_path), 3, nothing) as probes:
        probes.foresee([12, 25, 20, 1])
        assert probes(40).judgement is BAD
        assert probes(20).judgement is FAILED
        with pytest.raises(UsageError, match="cannot be read"):
            probes(25)
        assert not (tmp_path / "1").exists()
        eventually(
            (tmp_path / "12").exists
        )  # a process that is slow to begin would be given up before it asks
    assert (tmp_path / "given up").exists()


def test_a_number_that_is_foreseen_twice_is_asked_twice() -> None:
    with ProbesAhead(lambda _at: Judged(judgement=GOOD, seen=str(os.getpid())), 2, nothing) as probes:
        probes.foresee([7, 7])
        assert probes(7).seen != probes(7).seen

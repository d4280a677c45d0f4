"""Building a branch, and undoing it at any moment."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from relive.checkpoint.criu import CriuTools
from relive.config import load_settings
from relive.kernel import procfs
from relive.sandbox import builder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class NoGroups:
    """Control groups that nobody is moved into."""

    directories: tuple[Path, ...] = ()

    def add(self, pid: int) -> None:
        """Nothing."""


def test_a_branch_that_fails_of_being_given_up_is_reaped_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a builder at work; WHEN it fails between the look at it and the end of its process 1; THEN that is no error."""
    (tmp_path / "images").mkdir()
    killed = threading.Event()
    monkeypatch.setattr(builder, "check_sealed", lambda: killed.wait(60))
    made = builder.BranchBuilder(tmp_path, CriuTools(load_settings().tools_path), NoGroups())  # type: ignore[arg-type]
    init = made._init.result(60)
    really = os.kill

    def kill(pid: int, number: int) -> None:
        really(pid, number)
        if not killed.is_set():
            killed.set()
            wait([made._built], 60)

    monkeypatch.setattr(os, "kill", kill)
    made.abandon()
    assert made._built.exception() is not None
    assert not procfs.exists(init)
    made.abandon()


class DoneAsTimeIsUp(Future[object]):
    """Has its result from the very moment on at which who waits for it gives up."""

    def __init__(self, made: object) -> None:
        super().__init__()
        self._made = made

    def result(self, timeout: float | None = None) -> object:
        if not self.done():
            self.set_result(self._made)
            raise TimeoutError
        return super().result(timeout)


class DoneInAMoment(Future[object]):
    """Done by who waits for it at all."""

    def result(self, timeout: float | None = None) -> object:
        if timeout:
            self.set_result("made")
        return super().result(0)


def test_what_a_caller_does_before_it_waits_is_not_of_the_time_that_is_given() -> None:
    """CRIU waits meanwhile for what it is to be told."""
    made = builder.BranchBuilder.__new__(builder.BranchBuilder)
    made._moved_at, made._limit = time.monotonic() - 1000, 20.0
    made._built = DoneInAMoment()  # type: ignore[assignment]
    assert made.finish() == "made"


def test_a_branch_that_is_there_as_time_is_up_is_given() -> None:
    made = builder.BranchBuilder.__new__(builder.BranchBuilder)
    made._moved_at = made._limit = 0.0
    branch = object()
    made._built = DoneAsTimeIsUp(branch)  # type: ignore[assignment]
    assert made.finish() is branch

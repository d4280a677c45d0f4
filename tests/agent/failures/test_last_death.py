"""What belongs to a death that was caught, and what does not."""

from __future__ import annotations

import signal
import time

import pytest

from relive.agent.failures.last_death import LastDeath


def test_without_a_death_nothing_belongs_to_one() -> None:
    death = LastDeath()
    assert not death.breaks(None)
    assert not death.ends_service(signal.SIGSEGV)
    assert not death.ends_service(None)


def test_what_breaks_while_it_stands_and_right_after_went_with_it() -> None:
    death = LastDeath()
    death.begin(signal.SIGSEGV, is_head=False)
    began = time.time_ns()
    assert death.breaks(began) and death.breaks(None)
    death.let_go()
    assert death.breaks(began) and death.breaks(None)


def test_a_request_that_began_after_it_breaks_for_another_reason() -> None:
    death = LastDeath()
    death.begin(signal.SIGSEGV, is_head=False)
    death.let_go()
    assert not death.breaks(time.time_ns() + 1)


def test_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    death = LastDeath()
    death.begin(signal.SIGSEGV, is_head=False)
    death.let_go()
    later = time.monotonic() + 60
    monkeypatch.setattr("relive.agent.failures.last_death.time.monotonic", lambda: later)
    assert not death.breaks(1) and not death.breaks(None)


def test_only_the_end_of_the_service_s_head_is_explained_by_it() -> None:
    death = LastDeath()
    death.begin(signal.SIGSEGV, is_head=False)
    death.let_go()
    assert not death.ends_service(signal.SIGSEGV), "a worker's"
    death.begin(signal.SIGSEGV, is_head=True)
    assert death.ends_service(signal.SIGSEGV)
    assert not death.ends_service(signal.SIGTERM)


def test_what_was_written_right_before_it_is_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    death = LastDeath()
    assert not death.is_recent()
    death.begin(None, is_head=False)
    assert death.is_recent()
    death.let_go()
    assert death.is_recent()
    later = time.monotonic() + 2
    monkeypatch.setattr("relive.agent.failures.last_death.time.monotonic", lambda: later)
    assert not death.is_recent()

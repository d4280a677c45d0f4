"""Who has ended since the tracer let go, and how."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from relive.signals.accounting import TracedProcess, ends, forget


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def known(sleeper: subprocess.Popen[bytes]) -> Iterator[TracedProcess]:
    found = TracedProcess.of(sleeper.pid)
    assert found is not None
    yield found
    forget([found])


def test_who_lives_has_no_end(known: TracedProcess) -> None:
    assert list(ends([known])) == []


def test_the_end_of_a_zombie_is_in_its_line_of_proc(known: TracedProcess) -> None:
    os.kill(known.pid, signal.SIGKILL)
    os.waitid(os.P_PID, known.pid, os.WEXITED | os.WNOWAIT)
    (end,) = ends([known])
    assert (end.pid, end.signal, end.comm, end.inside) == (
        known.pid,
        signal.SIGKILL,
        known.who.comm,
        known.who.inside,
    )


def test_how_it_ended_is_not_known_without_a_handle(
    sleeper: subprocess.Popen[bytes], known: TracedProcess
) -> None:
    sleeper.kill()
    sleeper.wait()
    (end,) = ends([replace(known, handle=None)])
    assert (end.pid, end.status, end.signal, end.comm) == (known.pid, None, None, known.who.comm)
    assert end.seconds > 0


def test_a_number_that_is_another_process_s_by_now_is_not_the_one_that_was_known(
    known: TracedProcess,
) -> None:
    before = replace(known, who=replace(known.who, start_ticks=known.who.start_ticks - 1, comm="former"))
    (end,) = ends([before])
    assert (end.pid, end.comm) == (known.pid, "former")


def test_who_is_gone_cannot_be_known(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    assert TracedProcess.of(sleeper.pid) is None


def test_handles_leave_room_for_other_files(known: TracedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (8, 8))
    found = TracedProcess.of_all([known.pid] * 3)
    assert [one.handle is not None for one in found] == [True, True, False]
    forget(found)

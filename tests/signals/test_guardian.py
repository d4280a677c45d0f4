"""The guardian apart from a tracer: a process of this test is stopped, and what holds the pipe goes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator

import pytest

from relive.signals.crash import Crash
from relive.signals.guardian import guard
from relive.signals.signals import SignalInfo
from relive.signals.tasks import state_of

LIMIT = 60.0  # [s]


@pytest.fixture
def stopped() -> Iterator[subprocess.Popen[bytes]]:
    sleeper = subprocess.Popen(["sleep", "3600"])
    sleeper.send_signal(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    yield sleeper
    sleeper.kill()
    sleeper.wait()


def crash_of(process: subprocess.Popen[bytes]) -> Crash:
    info = SignalInfo(number=signal.SIGABRT, code=0, address=None, sender=None)
    return Crash(process.pid, process.pid, info, "sleep", os.pidfd_open(process.pid), comes_back=False)


def test_it_lets_the_process_die_when_nobody_holds_the_pipe_any_more(
    stopped: subprocess.Popen[bytes],
) -> None:
    crash = crash_of(stopped)
    os.close(guard(crash, LIMIT))
    os.close(crash.pidfd)
    assert stopped.wait(LIMIT) == -signal.SIGABRT


def test_it_does_so_too_when_the_hold_has_lasted_for_too_long(stopped: subprocess.Popen[bytes]) -> None:
    crash = crash_of(stopped)
    crash.guard = guard(crash, 0.05)
    assert stopped.wait(LIMIT) == -signal.SIGABRT
    crash.close()


def test_one_that_is_dismissed_does_nothing(stopped: subprocess.Popen[bytes]) -> None:
    crash = crash_of(stopped)
    crash.guard = guard(crash, LIMIT)
    pipe = os.dup(crash.guard)
    crash.close()
    poll = select.poll()
    poll.register(pipe, 0)  # POLLERR once nobody reads there any more: the guardian has ended
    assert poll.poll(LIMIT * 1000)
    os.close(pipe)
    assert state_of(stopped.pid) == "T"

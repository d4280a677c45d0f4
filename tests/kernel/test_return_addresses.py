"""The calls that led to where a stopped thread stands."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator

import pytest

from relive.kernel import procfs
from relive.kernel.return_addresses import callers_of

_C_CALL = ctypes.CFUNCTYPE(None)


@pytest.fixture
def stopped() -> Iterator[int]:
    """A process that has stopped itself within several calls of the C library and Python."""
    pid = os.fork()
    if pid == 0:
        _C_CALL(lambda: os.kill(os.getpid(), signal.SIGSTOP))()
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_they_lie_in_code_of_files_and_are_the_same_at_each_look(stopped: int) -> None:
    callers = callers_of(stopped, stopped)
    code = [one for one in procfs.read_maps(stopped) if "x" in one.permissions and one.path.startswith("/")]
    assert callers
    assert all(any(one.start <= call < one.end for one in code) for call in callers)
    assert callers_of(stopped, stopped) == callers


def test_of_who_is_gone_nothing_is_known() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert callers_of(pid, pid) is None
    os.waitpid(pid, 0)
    assert callers_of(pid, pid) is None

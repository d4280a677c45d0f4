"""Who goes before all ordinary work, and for how long."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from relive.kernel.realtime import BeforeOthers
from support.waiting import eventually

LONG = 600.0
RAISED = os.SCHED_RR | os.SCHED_RESET_ON_FORK


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["/bin/sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


def is_refused(pid: int) -> bool:
    try:
        os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return True
    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
    return False


@pytest.fixture
def allowed(sleeper: int) -> int:
    if is_refused(sleeper):
        pytest.skip("no real-time priority here")
    return sleeper


def test_those_added_go_first_until_the_end_of_the_block(allowed: int) -> None:
    with BeforeOthers(LONG) as found:
        found.add(allowed)
        found.add(threading.get_native_id())
        assert [os.sched_getscheduler(pid) for pid in (allowed, 0)] == [RAISED, RAISED]
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as child:
            assert os.sched_getscheduler(child.pid) == os.SCHED_OTHER
    assert [os.sched_getscheduler(pid) for pid in (allowed, 0)] == [os.SCHED_OTHER, os.SCHED_OTHER]


def test_when_the_limit_has_passed_they_are_as_before_and_nobody_is_added_any_more(allowed: int) -> None:
    os.sched_setscheduler(allowed, os.SCHED_BATCH, os.sched_param(0))
    with BeforeOthers(0.0) as found:
        found.add(allowed)
        eventually(lambda: os.sched_getscheduler(allowed) == os.SCHED_BATCH, "it is as before")
        found.add(allowed)
        assert os.sched_getscheduler(allowed) == os.SCHED_BATCH


@pytest.mark.parametrize("policy", [os.SCHED_IDLE, os.SCHED_FIFO])
def test_what_somebody_has_given_another_policy_keeps_it(allowed: int, policy: int) -> None:
    os.sched_setscheduler(allowed, policy, os.sched_param(int(policy == os.SCHED_FIFO)))
    with BeforeOthers(LONG) as found:
        found.add(allowed)
        assert os.sched_getscheduler(allowed) == policy
    assert os.sched_getscheduler(allowed) == policy


def test_where_the_kernel_refuses_it_or_nobody_is_there_all_stays_as_it_is(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    with BeforeOthers(LONG) as found:
        found.add(2**30)
        monkeypatch.setattr(os, "sched_setscheduler", refuse)
        found.add(sleeper)
        assert os.sched_getscheduler(sleeper) == os.SCHED_OTHER


def test_without_the_right_to_it_all_stays_as_it_is() -> None:
    """CAP_SYS_NICE and RLIMIT_RTPRIO: refused by the kernel itself."""
    program = (
        "import os, threading; from relive.kernel.realtime import BeforeOthers\n"
        "with BeforeOthers(600.0) as found:\n"
        "    found.add(threading.get_native_id()); print(os.sched_getscheduler(0))"
    )
    without = ["prlimit", "--rtprio=0", "setpriv", "--inh-caps=-sys_nice", "--bounding-set=-sys_nice"]
    told = subprocess.run(
        [*without, sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == [str(os.SCHED_OTHER)]


def test_without_a_thread_that_ends_it_nobody_is_raised(
    sleeper: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with BeforeOthers(LONG) as found:
        found.add(sleeper)
        assert os.sched_getscheduler(sleeper) == os.SCHED_OTHER


def test_the_thread_that_ends_it_goes_before_those_that_are_raised(allowed: int) -> None:
    with BeforeOthers(LONG) as found:
        found.add(allowed)
        (ends,) = (one.native_id for one in threading.enumerate() if one.name == "before-others")
        assert ends is not None
        priorities = [os.sched_getparam(pid).sched_priority for pid in (ends, allowed)]
    assert priorities == [2, 1]


def test_a_flag_that_may_not_be_taken_away_keeps_nobody_raised(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = os.sched_setscheduler

    def keep_flag(pid: int, policy: int, param: os.sched_param) -> None:
        if not policy & os.SCHED_RESET_ON_FORK:
            raise PermissionError
        really(pid, policy, param)

    with BeforeOthers(LONG) as found:
        found.add(allowed)
        monkeypatch.setattr(os, "sched_setscheduler", keep_flag)
    assert os.sched_getscheduler(allowed) == os.SCHED_OTHER | os.SCHED_RESET_ON_FORK


def test_what_has_got_its_number_since_is_left_alone(allowed: int) -> None:
    """It has another policy than the one that was given to the one before."""
    with BeforeOthers(LONG) as found:
        found.add(allowed)
        os.sched_setscheduler(allowed, os.SCHED_IDLE, os.sched_param(0))
    assert os.sched_getscheduler(allowed) == os.SCHED_IDLE

"""The recorded wall clock: machine code written into the vDSO of a stopped process really shifts what it reads."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relive.errors import RestoreFailed
from relive.sandbox import clock
from relive.sandbox.clock import shift_wall_clock, time_routines

from .helpers import needs_root

SECOND = 1_000_000_000
DAY = 86_400 * SECOND

# Reads every clock there is when asked; answers in JSON.
READER = """
import ctypes, datetime, json, sys, time
libc = ctypes.CDLL(None)
libc.time.restype = ctypes.c_long
class Pair(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("rest", ctypes.c_long)]
def pair(call):
    value = Pair(); assert call(ctypes.byref(value)) == 0; return [value.seconds, value.rest]
print("ready", flush=True)
for line in sys.stdin:
    stored = ctypes.c_long()
    returned = libc.time(ctypes.byref(stored))
    print(json.dumps({
        "time_ns": time.time_ns(), "time": time.time(), "datetime": datetime.datetime.now().timestamp(),
        "clock_gettime": pair(lambda p: libc.clock_gettime(0, p)),
        "coarse": pair(lambda p: libc.clock_gettime(5, p)),
        "gettimeofday": pair(lambda p: libc.gettimeofday(p, None)),
        "gettimeofday_null": libc.gettimeofday(None, None),
        "libc_time": libc.time(None), "libc_time_returned": returned, "libc_time_stored": stored.value,
        "bad_clock": libc.clock_gettime(99, ctypes.byref(Pair())),
        "monotonic_ns": time.monotonic_ns(), "boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
    }), flush=True)
"""


class Reader:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def shift(self, shift_ns: int) -> None:
        pid = self.process.pid
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED)
        shift_wall_clock([pid], shift_ns)
        os.kill(pid, signal.SIGCONT)

    def read(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("read\n")
        self.process.stdin.flush()
        values: dict[str, Any] = json.loads(self.process.stdout.readline())
        return values


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader()
    yield made
    made.process.communicate()


def check(reader: Reader, shift_ns: int) -> None:
    """Every clock shows the real time and the shift."""
    before, before_monotonic = time.time_ns(), time.monotonic_ns()
    values = reader.read()
    after, after_monotonic = time.time_ns(), time.monotonic_ns()
    earliest, latest = before + shift_ns, after + shift_ns
    grain = 20_000_000  # of the coarse clock
    assert earliest <= values["time_ns"] <= latest
    for name in ("time", "datetime"):
        assert earliest - 2000 <= values[name] * SECOND <= latest + 2000  # a float holds microseconds
    for name, unit in (("clock_gettime", 1), ("coarse", 1), ("gettimeofday", 1000)):
        seconds, rest = values[name]
        assert 0 <= rest * unit < SECOND
        assert earliest - (grain if name == "coarse" else unit) <= seconds * SECOND + rest * unit <= latest
    for name in ("libc_time", "libc_time_returned", "libc_time_stored"):
        assert (earliest - grain) // SECOND <= values[name] <= latest // SECOND
    assert values["gettimeofday_null"] == 0
    assert values["bad_clock"] != 0
    assert before_monotonic <= values["monotonic_ns"] <= after_monotonic
    assert abs(values["boottime_ns"] - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) < 60 * SECOND


@needs_root
@pytest.mark.parametrize(
    "shift_ns",
    [
        0,
        1,
        -1,
        SECOND,
        -SECOND,
        999_999_999,
        -999_999_999,
        500_000_000,
        3600 * SECOND + 123_456_789,
        -400 * DAY - 1,
        40_000 * DAY,
    ],
)
def test_all_wall_clocks_of_a_process_are_shifted_and_no_other(reader, shift_ns):
    check(reader, 0)
    reader.shift(shift_ns)
    for _ in range(3):
        check(reader, shift_ns)


@needs_root
def test_a_second_shift_takes_the_place_of_the_first(reader):
    reader.shift(5 * DAY)
    reader.shift(-3 * SECOND)
    check(reader, -3 * SECOND)


@needs_root
def test_the_clock_runs_on(reader):
    reader.shift(-DAY)
    first, second = reader.read()["time_ns"], reader.read()["time_ns"]
    assert second > first


@needs_root
def test_several_processes_are_shifted_together():
    readers = [Reader(), Reader()]
    for one in readers:
        os.kill(one.process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, one.process.pid, os.WSTOPPED)
    shift_wall_clock([one.process.pid for one in readers], DAY)
    for one in readers:
        os.kill(one.process.pid, signal.SIGCONT)
        check(one, DAY)
        one.process.communicate()


@given(st.integers(-(2**62), 2**62))
def test_a_shift_is_whole_seconds_and_a_positive_rest(shift_ns):
    seconds, rest = divmod(shift_ns, SECOND)
    code = time_routines(shift_ns)
    assert set(code) == {"__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time"}
    assert all(routine.endswith(b"\xc3") for routine in code.values())
    assert struct.pack("<q", seconds) in code["__vdso_clock_gettime"]
    assert struct.pack("<q", rest) in code["__vdso_clock_gettime"]
    assert struct.pack("<q", rest // 1000) in code["__vdso_gettimeofday"]
    assert struct.pack("<q", rest) in code["__vdso_time"]


def test_the_routines_fit_into_what_is_left_of_a_page():
    """The smallest rest of any x86-64 vDSO seen so far is above 700 bytes."""
    assert sum(len(code) + 16 for code in time_routines(-1).values()) < 400


def test_a_process_that_is_gone_needs_no_shift():
    shift_wall_clock([2**22 + 5], DAY)


@pytest.mark.parametrize(
    "error", [PermissionError(13, "not yours"), KeyError("__vdso_time"), ValueError("no room left")]
)
def test_a_vdso_that_cannot_be_changed_is_a_failed_restore(monkeypatch, error):
    def fail(_pid: int, _routines: dict[str, bytes]) -> None:
        raise error

    monkeypatch.setattr(clock, "_patch", fail)
    with pytest.raises(RestoreFailed) as caught:
        shift_wall_clock([7], DAY)
    assert "process 7" in (caught.value.cause or "")
    assert "--clock now" in (caught.value.remedy or "")

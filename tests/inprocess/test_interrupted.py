"""A signal's exception that arrives while an event is recorded is the service's: it gets it."""

from __future__ import annotations

from collections.abc import Callable

from relive.recording.events import EventKind

from .conftest import Ran

AFTER_THE_EVENT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever ran the tests may have it ignored
from relive_recorder.recorder import recorder

class Interrupted:
    # The interpreter handles a signal right after the function in C that it came in.
    def emit(self, *given):
        written = real.emit(*given)
        signal.raise_signal(signal.SIGINT)
        return written

    def last(self):
        return real.last()

real, recorder.quick = recorder.quick, Interrupted()
try:
    recorder.emit("note", {"about": "first"})
except KeyboardInterrupt:
    print("raised")
recorder.quick = real
recorder.emit("note", {"about": "second"})
"""

WITH_THE_LOCK = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever ran the tests may have it ignored
from relive_recorder.recorder import recorder

class Interrupted:
    def acquire(self, blocking):
        real.acquire(blocking)
        signal.raise_signal(signal.SIGINT)

    def __getattr__(self, name):
        return getattr(real, name)

real, recorder._writing, recorder.quick = recorder._writing, Interrupted(), None
try:
    recorder.emit("note", {"about": "first"})
except KeyboardInterrupt:
    print("raised")
"""


def test_ctrl_c_behind_a_recorded_event_is_raised_and_recording_goes_on(
    run_recorded: Callable[..., Ran],
) -> None:
    ran = run_recorded(AFTER_THE_EVENT)
    assert (ran.status, ran.out, ran.err) == (0, "raised\n", "")
    assert [event.fields["about"] for event in ran.of(EventKind.NOTE)] == ["first", "second"]


def test_ctrl_c_that_leaves_the_rings_lock_held_is_raised_and_switches_the_recorder_off(
    run_recorded: Callable[..., Ran],
) -> None:
    ran = run_recorded(WITH_THE_LOCK)
    assert (ran.status, ran.out) == (0, "raised\n")
    assert "recorder switched off" in ran.err and "KeyboardInterrupt" in ran.err

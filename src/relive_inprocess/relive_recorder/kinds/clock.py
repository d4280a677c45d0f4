"""Clock readings: ``time.time``, ``time_ns``, ``monotonic``, ``perf_counter`` and their like.

Event ``clock``: fields ``source`` (such as "time.time"), ``value``. Readings by Python's own machinery (event loops, queues,
logging) are neither recorded nor answered: time-outs in a branch must go by its real clock. In a replay a reading by the
service's code is answered with the next one that was recorded in the same lane from the same source, and from the real clock
when none is left.
"""

import sys
import time
from typing import Any, Callable

from relive_recorder import quick
from relive_recorder.calls import next_reading
from relive_recorder.kinds.callers import is_machinery, verdicts
from relive_recorder.recorder import RECORD, REPLAY, recorder

__all__ = ["install"]

_SOURCES = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
_get_frame = sys._getframe


def install() -> None:
    """Replace the functions of ``time``. What was imported from it by name before stays as it was."""
    for name in _SOURCES:
        real = getattr(time, name)
        told = _reading(f"time.{name}", real)
        if quick.module is not None:
            told = quick.module.clock(name, real, told, verdicts, time, real.__doc__ or "")
        setattr(time, name, told)


def _reading(source: str, real: Callable[[], Any]) -> Callable[[], Any]:
    begin = '{"source":"%s","value":' % source

    def read() -> Any:
        frame = _get_frame(1)
        name = frame.f_globals.get("__name__")
        # Nearly all readings are the machinery's: a dozen in a request. They are let through with a look into one dict.
        if type(name) is str and verdicts.get(name):
            return real()
        mode = recorder.mode()
        if mode not in (RECORD, REPLAY) or is_machinery(frame):
            return real()
        value = real()
        if mode == REPLAY:
            kept = next_reading("clock", source)
            if type(kept) is type(value):
                value = kept
        recorder.emit_json("clock", f"{begin}{value!r}}}")  # a finite number is JSON as it is
        return value

    read.__name__ = read.__qualname__ = source.partition(".")[2]
    read.__module__ = "time"
    read.__doc__ = real.__doc__
    return read

"""Clock readings: ``time.time``, ``time_ns``, ``monotonic``, ``perf_counter`` and their like.

Event ``clock``: fields ``source`` (such as "time.time"), ``value``. Readings by Python's own machinery (event loops, queues,
logging) are neither recorded nor answered: time-outs in a branch must go by its real clock. In a replay a reading by the
service's code is answered with the next one that was recorded in the same lane from the same source, and from the real clock
when none is left. ``localtime``, ``gmtime``, ``ctime``, ``asctime`` and ``strftime`` without a time are a reading of "time.time".
"""

import functools
import sys
import time
from typing import Any, Callable

from relive_recorder import quick
from relive_recorder.calls import next_reading
from relive_recorder.imports import before_import
from relive_recorder.kinds.callers import is_machinery, verdicts
from relive_recorder.recorder import RECORD, REPLAY, recorder

__all__ = ["WRITES_INTO_BUILT_INS", "install"]

# The part in C of time-machine, which writes into what it takes for built-in functions of ``time`` and ``datetime``. It must find
# the real ones there, so that their readings are no more recorded once it is imported.
WRITES_INTO_BUILT_INS = "_time_machine"
_SOURCES = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
# What tells the present where it is given no time, and the place of that among its arguments.
_OF_NOW = {"localtime": 0, "gmtime": 0, "ctime": 0, "asctime": 0, "strftime": 1}
_get_frame = sys._getframe
_real_time, _real_localtime = time.time, time.localtime


def install() -> None:
    """Replace the functions of ``time``. What was imported from it by name before stays as it was."""
    before = {name: getattr(time, name) for name in (*_SOURCES, *_OF_NOW)}
    for name in _SOURCES:
        real = getattr(time, name)
        source = f"time.{name}"
        wrapper = _reading(source, real)
        if quick.module is not None:
            begin = _begin(source).encode("ascii")
            parts = begin, real, wrapper, functools.partial(_emit, source), recorder, verdicts
            wrapper = quick.module.clock(name, time, real.__doc__ or "", parts)
        setattr(time, name, wrapper)
    for name, place in _OF_NOW.items():
        setattr(time, name, _OfNow(name, place))

    def put_back() -> None:
        for name, real in before.items():
            setattr(time, name, real)

    before_import(WRITES_INTO_BUILT_INS, put_back)


def _begin(source: str) -> str:
    return '{"source":"%s","value":' % source


def _emit(source: str, value: Any, is_played: bool = False) -> None:
    played = ',"played":true' if is_played else ""
    recorder.emit_json("clock", f"{_begin(source)}{value!r}{played}}}")  # a finite number is JSON as it is


def _reading(source: str, real: Callable[[], Any]) -> Callable[[], Any]:

    def read() -> Any:
        frame = _get_frame().f_back
        if frame is None:  # a thread or a callback of C: no Python code asks
            return real()
        caller = frame.f_globals.get("__name__")
        # Nearly all readings are the machinery's: a dozen in a request. They are let through with a look into one dict.
        if type(caller) is str and verdicts.get(caller):
            return real()
        mode = recorder.mode()
        if mode not in (RECORD, REPLAY) or is_machinery(frame):
            return real()
        value, is_played = real(), False
        if mode == REPLAY:
            kept = next_reading("clock", source)
            if kept is not None and type(kept[0]) is type(value):
                value, is_played = kept
        _emit(source, value, is_played)
        return value

    read.__name__ = read.__qualname__ = source.partition(".")[2]
    read.__module__ = "time"
    read.__doc__ = real.__doc__
    return read


class _OfNow:
    """As a function of ``time`` that tells the present where it is given no time.

    No function: ``logging.Formatter.converter = time.gmtime`` is written everywhere, and must not make a method of it.
    """

    def __init__(self, name: str, place: int) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = "time"
        self.__wrapped__ = getattr(time, name)
        self.__doc__ = self.__wrapped__.__doc__
        self._place = place
        self._of_struct = name in ("asctime", "strftime")

    def __call__(self, *given: Any) -> Any:
        real, place = self.__wrapped__, self._place
        is_of_now = len(given) == place or (len(given) == place + 1 and given[place] is None)
        if not is_of_now or recorder.mode() not in (RECORD, REPLAY) or is_machinery(_get_frame().f_back):
            return real(*given)
        if self._of_struct and len(given) > place:
            return real(*given)  # None is no time to these
        now = _now()
        return real(*given[:place], _real_localtime(now) if self._of_struct else now)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __reduce__(self) -> str:
        return self.__name__


def _now() -> float:
    now, is_played = _real_time(), False
    if recorder.mode() == REPLAY:
        kept = next_reading("clock", "time.time")
        if kept is not None and type(kept[0]) is float:
            now, is_played = kept
    _emit("time.time", now, is_played)
    return now

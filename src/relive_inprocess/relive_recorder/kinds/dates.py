"""Clock readings by ``datetime.datetime.now`` and ``utcnow``.

Event ``clock``: fields ``source`` ("datetime.now", "datetime.utcnow"), ``value`` (packed). ``date.today`` and ``datetime.today``
call ``time.time`` themselves, and so are recorded under that name.

``datetime`` is a type of C, which nobody may set attributes of, and which must stay the very type that it is: a subclass in its
place would not be what C code makes, nor what ``isinstance`` and pickles know. So its methods are replaced in the dictionary
that the type has, which the garbage collector hands out, and the interpreter is told to forget what it remembers of types.
Nothing is mapped or patched in memory. Where afterwards the type does not have our methods, they are put back, and these clocks
stay unrecorded.
"""

import gc
import sys
from typing import Any, Dict, Optional

from relive_recorder.calls import next_reading
from relive_recorder.guard import attempt
from relive_recorder.imports import before_import, when_imported
from relive_recorder.kinds.callers import is_machinery
from relive_recorder.kinds.clock import WRITES_INTO_BUILT_INS
from relive_recorder.recorder import RECORD, REPLAY, recorder

__all__ = ["install"]

_get_frame = sys._getframe


def install() -> None:
    """Wait for ``datetime``."""
    when_imported("datetime", _change)


def _change(module: Any) -> None:
    kind = module.datetime
    owned = _dictionary_of(kind)
    if owned is None:
        return
    before = {name: owned[name] for name in ("now", "utcnow")}
    owned["now"] = classmethod(_now(before["now"]))
    owned["utcnow"] = classmethod(_utcnow(before["utcnow"]))
    _forget_types()
    if getattr(kind.now, "__func__", None) is not owned["now"].__func__:
        owned.update(before)
        _forget_types()
        return

    def put_back() -> None:
        owned.update(before)
        _forget_types()

    before_import(WRITES_INTO_BUILT_INS, put_back)


def _dictionary_of(kind: type) -> Optional[Dict[str, Any]]:
    """The dictionary behind a type's ``__dict__``; None where it is not as in the Pythons that are known."""
    view = kind.__dict__
    for found in gc.get_referents(view):
        if type(found) is dict and found.get("now") is view["now"] and len(found) == len(view):
            return found
    return None


def _forget_types() -> None:
    # The second is the name until 3.12; later it still is there, but warns.
    forget = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache
    forget()


def _now(real: Any) -> Any:
    def now(cls: Any, tz: Any = None) -> Any:
        mode = recorder.mode()
        if mode not in (RECORD, REPLAY) or is_machinery(_get_frame().f_back):
            return real.__get__(None, cls)(tz)
        kept = attempt(_again, cls, tz, "datetime.now") if mode == REPLAY else None
        value, is_played = (real.__get__(None, cls)(tz), False) if kept is None else kept
        attempt(_emit, "datetime.now", value, is_played)
        return value

    return _as(now, real)


def _utcnow(real: Any) -> Any:
    def utcnow(cls: Any) -> Any:
        mode = recorder.mode()
        if mode not in (RECORD, REPLAY) or is_machinery(_get_frame().f_back):
            return real.__get__(None, cls)()
        kept = attempt(_again, cls, None, "datetime.utcnow") if mode == REPLAY else None
        value, is_played = (real.__get__(None, cls)(), False) if kept is None else kept
        attempt(_emit, "datetime.utcnow", value, is_played)
        return value

    return _as(utcnow, real)


def _as(function: Any, real: Any) -> Any:
    function.__doc__ = real.__doc__
    function.__annotations__ = {}
    function.__module__ = "datetime"
    function.__qualname__ = f"datetime.{function.__name__}"
    return function


def _emit(source: str, value: Any, is_played: bool) -> None:
    encoded = source, value.isoformat(), value.fold, ',"played":true' if is_played else ""
    recorder.emit_json("clock", '{"source":"%s","value":{"$":["datetime","%s",%d]}%s}' % encoded)


def _again(cls: Any, tz: Any, source: str) -> Any:
    kept = next_reading("clock", source)
    if kept is None:
        return None
    text, fold = kept[0]["$"][1:3]
    value = cls.fromisoformat(text).replace(fold=fold)
    if (value.tzinfo is None) is not (tz is None):  # the service asks for something else than it did
        return None
    return (value if tz is None else value.astimezone(tz)), kept[1]

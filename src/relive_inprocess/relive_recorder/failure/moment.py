"""An exception was seen to escape: tell it, keep its package, and stand still where policy says so."""

import collections
import os
import sys
import time
from typing import Any, Deque, Dict, Optional

from relive_recorder import context
from relive_recorder.failure import chain, waiting
from relive_recorder.failure.frames import Step
from relive_recorder.failure.representation import MARK, Representer, own_dict, type_name
from relive_recorder.recorder import FREE, OFF, recorder

__all__ = ["seen"]

_LOOK = 100_000_000  # [ns of its thread] for looking at values
_AGAIN = 1_000_000_000  # [ns] the same object seen again after this was raised again
_PACKAGES = 20  # that are made ...
_PACKAGES_TIME = 10_000_000_000  # [ns] ... in this time at most; the event is written for every failure
_mono = time.monotonic_ns

_made: Deque[int] = collections.deque()


def seen(error: Optional[BaseException], where: str) -> None:
    """Call it where the exception passes, in its thread, with its traceback as long as it will be. Never raises.

    The same exception may pass several places (a framework's handler, a log, the server): the first one counts.

    Args:
        where: "handler", "thread", "task", "main", "job" or "log".
    """
    if error is None or recorder.mode() in (OFF, FREE):
        return
    try:
        _seen(error, where)
    except (RecursionError, MemoryError):  # the service's: there is no room to look at it here
        pass
    except Exception as fault:
        recorder.switch_off(fault)


def _seen(error: BaseException, where: str) -> None:
    fingerprint, place = chain.fingerprint(error)
    if _has_passed(error):
        return
    representer = Representer(recorder.scrubber, time.thread_time_ns() + _LOOK)
    fields = _fields(error, where, fingerprint, place, representer)
    throw = waiting.decide(fingerprint)
    query = sys.modules.get("relive_recorder.kinds.query")
    if query is not None:
        query.flush_rows()
    try:
        data = _package(error, where, fingerprint, representer) if throw or _may_make() else b""
        if throw:
            fields["throw"] = throw
        recorder.emit("failure", fields, data)
    finally:
        if throw:
            waiting.stand_still(throw, error)
            _mark(error)  # the time that it stood still is none in which the exception passed on


def _package(error: BaseException, where: str, fingerprint: str, representer: Representer) -> bytes:
    from relive_recorder.failure import package

    return package.make(error, where, fingerprint, representer)


def _fields(
    error: BaseException, where: str, fingerprint: str, place: Optional[Step], representer: Representer
) -> Dict[str, Any]:
    about = context.here().about
    kind = type_name(type(error))
    fields: Dict[str, Any] = {
        "type": kind if "." in kind else f"builtins.{kind}",
        "text": chain.text_of(error, representer)[:500],
        "fingerprint": fingerprint,
        "where": where,
    }
    if place is not None:
        code = place[0].f_code
        fields["at"] = [code.co_filename, place[1], code.co_name]
    for name in ("method", "target", "peer", "server"):
        if about.get(name):
            fields[name] = about[name]
    return fields


def _has_passed(error: BaseException) -> bool:
    """It was seen a moment ago, at a place further in.

    The mark is in the exception's own ``__dict__``: an address says nothing, since the next exception is often made at the same
    one, and holding the exception would keep alive what its frames hold.
    """
    held = own_dict(error)
    if held is None:
        return False
    now, request = _mono(), context.here().number
    mark = dict.get(held, MARK)
    _mark(error)
    if type(mark) is not tuple or mark[0] != os.getpid():
        return False
    # One object may be raised again and again, by another request or later. What is seen outside of any request a moment
    # after it was seen in one has just left it.
    return bool(now - mark[2] < _AGAIN and request in (mark[1], 0))


def _mark(error: BaseException) -> None:
    held = own_dict(error)
    if held is not None:
        dict.__setitem__(held, MARK, (os.getpid(), context.here().number, _mono()))


def _may_make() -> bool:
    now = _mono()
    while _made and now - _made[0] > _PACKAGES_TIME:
        _made.popleft()
    if len(_made) >= _PACKAGES:
        return False
    _made.append(now)
    return True

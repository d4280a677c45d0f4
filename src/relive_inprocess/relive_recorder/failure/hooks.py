"""Exceptions outside of requests: of the main program, of threads, of tasks, and those that are logged with a traceback."""

import functools
import sys
import threading
from typing import Any

from relive_recorder.failure.moment import seen
from relive_recorder.guard import attempt
from relive_recorder.imports import when_imported
from relive_recorder.standing_in import stand_in

__all__ = ["install"]

_ERROR = 40  # logging.ERROR


def install() -> None:
    """Stand before the hooks that are there. Who replaces one of them later without calling it on takes ours away too."""
    _main()
    _threads()
    when_imported("asyncio.base_events", _loops)
    when_imported("uvloop", _uvloop)
    when_imported("logging", _logs)


def _main() -> None:
    before = sys.excepthook

    def excepthook(kind: Any, value: Any, traceback: Any) -> Any:
        if isinstance(value, Exception):  # not KeyboardInterrupt
            seen(value, "main")
        return before(kind, value, traceback)

    sys.excepthook = excepthook


def _threads() -> None:
    before = threading.excepthook

    def excepthook(args: Any) -> Any:
        if isinstance(args.exc_value, Exception):
            seen(args.exc_value, "thread")
        return before(args)

    threading.excepthook = excepthook


def _loops(module: Any) -> None:
    _watch_loop(module.BaseEventLoop)


def _uvloop(module: Any) -> None:
    _watch_loop(module.Loop)


def _watch_loop(kind: Any) -> None:
    """Tasks whose exception nobody fetched, callbacks that failed: all goes through ``call_exception_handler``."""
    before = kind.call_exception_handler

    @functools.wraps(before)
    def call_exception_handler(self: Any, context: Any) -> Any:
        attempt(_of_loop, context)
        return before(self, context)

    kind.call_exception_handler = call_exception_handler


def _of_loop(context: Any) -> None:
    error = context.get("exception") if type(context) is dict else None
    if isinstance(error, Exception):
        seen(error, "task")


def _logs(module: Any) -> None:
    before = module.Logger.handle

    def handle(self: Any, record: Any) -> Any:
        try:
            is_of_error = record.exc_info is not None
        except Exception:  # no record of logging's
            is_of_error = False
        if is_of_error:  # of most there is nothing else to see
            attempt(_of_record, record)
        return before(self, record)

    module.Logger.handle = stand_in(handle, before, module)


def _of_record(record: Any) -> None:
    given = record.exc_info
    if given and record.levelno >= _ERROR and type(given) is tuple and isinstance(given[1], Exception):
        seen(given[1], "log")

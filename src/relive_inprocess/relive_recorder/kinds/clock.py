"""Clock readings: ``time.time``, ``time_ns``, ``monotonic``, ``perf_counter`` and their like.

Event ``clock``: fields ``source`` (such as "time.time"), ``value``. Readings by Python's own machinery (event loops, queues,
logging) are neither recorded nor answered: time-outs in a branch must go by its real clock. In a replay a reading by the
service's code is answered with the next one that was recorded in the same lane from the same source, and from the real clock
when none is left.
"""

import sys
import time
from typing import Any, Callable, FrozenSet

from relive_recorder.calls import next_reading
from relive_recorder.recorder import RECORD, REPLAY, recorder

__all__ = ["install"]

_SOURCES = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
_get_frame = sys._getframe
# Whose readings are not the service's business: the first part of a module's name.
_MACHINERY: FrozenSet[str] = frozenset(
    {
        *(
            "asyncio",
            "concurrent",
            "threading",
            "queue",
            "selectors",
            "socket",
            "socketserver",
            "ssl",
            "subprocess",
        ),
        *(
            "multiprocessing",
            "logging",
            "http",
            "urllib",
            "email",
            "sched",
            "random",
            "uuid",
            "tempfile",
            "importlib",
        ),
        *(
            "uvloop",
            "uvicorn",
            "gunicorn",
            "hypercorn",
            "anyio",
            "sniffio",
            "trio",
            "httpx",
            "httpcore",
            "urllib3",
        ),
        *(
            "aiohttp",
            "redis",
            "psycopg",
            "psycopg_pool",
            "psycopg2",
            "asyncpg",
            "pymysql",
            "sqlalchemy",
            "celery",
        ),
        *("kombu", "rq", "botocore", "werkzeug", "relive_recorder", "_pytest", "pytest"),
    }
)


def install() -> None:
    """Replace the functions of ``time``. What was imported from it by name before stays as it was."""
    for name in _SOURCES:
        setattr(time, name, _reading(f"time.{name}", getattr(time, name)))


def _reading(source: str, real: Callable[[], Any]) -> Callable[[], Any]:
    def read() -> Any:
        mode = recorder.mode()
        if mode not in (RECORD, REPLAY):
            return real()
        name = _get_frame(1).f_globals.get("__name__", "")
        if type(name) is str and name.partition(".")[0] in _MACHINERY:
            return real()
        if mode == REPLAY:
            kept = next_reading("clock", source)
            value = real() if kept is None else kept
        else:
            value = real()
        recorder.emit("clock", {"source": source, "value": value})
        return value

    read.__name__ = read.__qualname__ = source.partition(".")[2]
    read.__module__ = "time"
    read.__doc__ = real.__doc__
    return read

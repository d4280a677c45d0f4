"""Microseconds of processor time of calls that the recorder records, as JSON: run by recorder.py, with the recorder and without it.

python benchmarks/_event_costs.py REDIS_PORT
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import redis as redis_module

_CALLS = 400
_RUNS = 9

database = sqlite3.connect(":memory:", isolation_level=None)
database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, note TEXT)")
for number in range(5):
    database.execute("INSERT INTO orders (customer, note) VALUES (?, ?)", (number, "a short note"))
redis = redis_module.Redis(port=int(sys.argv[1]))
redis.set("count", 1)
logger = logging.getLogger("orders")
logger.addHandler(logging.NullHandler())
logger.propagate = False


async def _answer(_scope: Any, receive: Any, send: Any) -> None:
    await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"12")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"count": 1}'})


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(_message: dict[str, Any]) -> None:
    pass


def _application() -> Any:
    if "relive_recorder" not in sys.modules:
        return _answer
    from relive_recorder.servers.asgi import RecordedAsgi  # type: ignore[import-not-found]  # noqa: PLC0415

    return RecordedAsgi(_answer)


application = _application()


def _request() -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/orders/7",
        "raw_path": b"/orders/7",
        "query_string": b"",
    }
    headers = [(b"host", b"127.0.0.1:8000"), (b"accept-encoding", b"identity")]
    steps = application(scope | {"client": ("127.0.0.1", 5), "headers": headers}, _receive, _send)
    try:
        steps.send(None)
    except StopIteration:
        return
    raise AssertionError("it has to wait")


def _rows() -> None:
    database.execute("SELECT id, note FROM orders WHERE id < ?", (9,)).fetchall()


async def _nothing() -> None:
    pass


async def _tasks() -> None:
    loop = asyncio.get_running_loop()
    for _ in range(_CALLS):
        await loop.create_task(_nothing())


CALLS: dict[str, Callable[[], Any]] = {
    "request through ASGI (2 events)": _request,
    "SQLite statement": lambda: database.execute("UPDATE orders SET customer = ? WHERE id = ?", (7, 1)),
    "SQLite select, 5 rows (2 events)": _rows,
    "Redis command": lambda: redis.get("count"),
    "clock": time.time,
    "os.urandom": lambda: os.urandom(16),
    "uuid4": uuid.uuid4,
    "log record": lambda: logger.warning("order %d of %s", 7, "somebody"),
}


def _least(call: Callable[[], Any], calls: int) -> float:
    least = float("inf")
    for _ in range(_RUNS):
        began = time.thread_time_ns()
        for _ in range(calls):
            call()
        least = min(least, (time.thread_time_ns() - began) / calls / 1e3)
    return least


found = {name: _least(call, _CALLS) for name, call in CALLS.items()}
found["task of asyncio (no event)"] = _least(lambda: asyncio.run(_tasks()), 1) / _CALLS
print(json.dumps(found))

"""Microseconds of processor time of a request of FastAPI or Flask without a server, as JSON; run by recorder.py.

Each request reads the clock, draws a random number and asks SQLite for one row; or it does nothing.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import sqlite3
import sys
import time
from typing import Any

from fastapi import FastAPI
from flask import Flask

_REQUESTS = 300
_RUNS = 9

if os.environ.get("SENTRY"):
    import sentry_sdk  # type: ignore[import-not-found]

    sentry_sdk.init(
        dsn="http://key@127.0.0.1:1/1",
        include_local_variables=True,
        traces_sample_rate=float(os.environ["SENTRY"]),
        transport=lambda _event: None,
    )
app = FastAPI()
database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, amount INTEGER)")
database.execute("INSERT INTO orders (amount) VALUES (7)")


def _work(order: int) -> dict[str, Any]:
    row = database.execute("SELECT id, amount FROM orders WHERE id = ?", (order,)).fetchone()
    return {"at": time.time(), "draw": random.random(), "row": row}


@app.get("/def/{order}")
def in_thread(order: int) -> dict[str, Any]:
    return _work(order)


@app.get("/async/{order}")
async def in_loop(order: int) -> dict[str, Any]:
    return _work(order)


@app.get("/nothing/{order}")
async def nothing(order: int) -> dict[str, int]:
    return {"order": order}


flask = Flask(__name__)


@flask.get("/flask/<int:order>")
def in_flask(order: int) -> dict[str, Any]:
    return _work(order)


def _applications() -> tuple[Any, Any]:
    if "relive_recorder" not in sys.modules:
        return app, flask
    from relive_recorder.servers.asgi import RecordedAsgi  # type: ignore[import-not-found]  # noqa: PLC0415
    from relive_recorder.servers.wsgi import RecordedWsgi  # type: ignore[import-not-found]  # noqa: PLC0415

    return RecordedAsgi(app), RecordedWsgi(flask)


application, wsgi_application = _applications()


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(_message: dict[str, Any]) -> None:
    pass


async def _ask(path: str) -> None:
    headers = [(b"host", b"127.0.0.1:8000"), (b"user-agent", b"wrk/4.1"), (b"accept", b"*/*")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "http",
        "root_path": "",
        "http_version": "1.1",
        "asgi": {"version": "3.0"},
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 5),
        "headers": headers,
    }
    await application(scope, _receive, _send)


async def _several(path: str) -> None:
    loop = asyncio.get_running_loop()
    for _ in range(_REQUESTS):
        await loop.create_task(_ask(path))  # as a server does it


def _start(_status: str, _headers: Any, _error: Any = None) -> None:
    pass


def _ask_flask(path: str) -> None:
    environ = {
        "wsgi.errors": sys.stderr,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.multithread": True,
        "REQUEST_METHOD": "GET",
        "QUERY_STRING": "",
        "RAW_URI": path,
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8000",
        "REMOTE_ADDR": "127.0.0.1",
        "REMOTE_PORT": "5",
        "HTTP_HOST": "127.0.0.1:8000",
        "HTTP_USER_AGENT": "wrk/4.1",
        "HTTP_ACCEPT": "*/*",
    }
    answer = wsgi_application(environ, _start)
    for _ in answer:
        pass
    answer.close()


def _least_of_flask(path: str) -> float:
    least = float("inf")
    for _ in range(_RUNS):
        began = time.process_time_ns()
        for _ in range(_REQUESTS):
            _ask_flask(path)
        least = min(least, (time.process_time_ns() - began) / _REQUESTS / 1e3)
    return least


def _least(path: str) -> float:
    least = float("inf")
    with asyncio.Runner() as runner:
        for _ in range(_RUNS):
            began = time.process_time_ns()  # of all threads
            runner.run(_several(path))
            least = min(least, (time.process_time_ns() - began) / _REQUESTS / 1e3)
    return least


found = {name: _least(f"/{name}/1") for name in ("def", "async", "nothing")}
print(json.dumps(found | {"flask": _least_of_flask("/flask/1")}))

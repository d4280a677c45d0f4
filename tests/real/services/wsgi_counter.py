"""A WSGI service for gunicorn with --preload: the workers count together in shared memory and in one file."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

count = multiprocessing.get_context("fork").Value("q", 0)
log = Path(os.environ["COUNTER_LOG"])
log.touch()


def app(environ: dict[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
    with count.get_lock():
        if environ["REQUEST_METHOD"] == "POST":
            count.value += 1
            with log.open("a") as file:
                file.write(f"{count.value}\n")
        answer = {
            "count": count.value,
            "lines": -1 if environ["REQUEST_METHOD"] == "POST" else len(log.read_text().splitlines()),
            "pid": os.getpid(),
            "monotonic": time.monotonic(),
            "wall": time.time(),
        }
    body = json.dumps(answer).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]

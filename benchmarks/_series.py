"""Services whose state changes a little from commit to commit, and who changes it; for ``store.py``.

- ``fastapi``: the application of ``_lab`` under uvicorn; a client asks 50 times a second.
- ``cache``: 300 MB of random values of 1 KB in a Python dictionary, 1 % of which are replaced between two commits.
- ``redis``: 150,000 values of 1 KB; a client sets 2000 a second, most of them among a few thousand keys.
"""

from __future__ import annotations

import contextlib
import http.client
import random
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from _lab import Lab, Program, free_port

__all__ = ["SERIES", "Client", "Series", "series"]

_CACHE = """
import os, random, sys, time
values = {number: os.urandom(1024) for number in range(300_000)}
print("filled", flush=True)
choose = random.Random(1)
while True:
    for number in choose.sample(range(300_000), 300):
        values[number] = os.urandom(1024)
    time.sleep(0.1)
"""
_KEYS, _WRITES = 150_000, 100


class Client:
    """Does a step again and again, in a thread, until it is left."""

    def __init__(self, step: Callable[[], None], every: float) -> None:
        self._step, self._every = step, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(self._every):
            self._step()


@dataclass(frozen=True, slots=True)
class Series:
    """A service, and how to make the client that changes it once it runs; None: it changes by itself.

    Attributes:
        says: what it prints when it is ready; empty if it can be seen by its port.
    """

    title: str
    program: Callable[[Lab], Program]
    client: Callable[[int], Client] | None
    port: int | None = None
    says: bytes = b""

    def wait_until_ready(self, output: Path) -> None:
        """Return when it is; raises SystemExit after a minute."""
        until = time.monotonic() + 60
        while not (self._accepts() if self.port else self.says in output.read_bytes()):
            if time.monotonic() > until:
                raise SystemExit(f"error: {self.title} does not come up")
            time.sleep(0.05)

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port or 0), 1):
            return True
        return False


def _asking(port: int) -> Client:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask() -> None:
        connection.request("GET", "/")
        connection.getresponse().read()

    return Client(ask, 0.02)


class _Redis:
    """A connection that sends many commands and reads all their answers (RESP)."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._answers = self._socket.makefile("rb")

    def set_all(self, keys: list[int], choose: random.Random) -> None:
        commands = []
        for key in keys:
            name, value = b"key:%d" % key, choose.randbytes(512) * 2
            commands.append(
                b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(name), name, len(value), value)
            )
        self._socket.sendall(b"".join(commands))
        for _ in keys:
            if self._answers.readline() != b"+OK\r\n":
                raise SystemExit("error: redis refused a value")


def _writing(port: int) -> Client:
    choose, redis = random.Random(1), _Redis(port)
    for first in range(0, _KEYS, 1000):
        redis.set_all(list(range(first, first + 1000)), choose)
    return Client(
        lambda: redis.set_all([int(choose.paretovariate(1.0) * 50) % _KEYS for _ in range(_WRITES)], choose),
        0.05,
    )


def _cache(_place: Lab) -> Program:
    return Program("cache", [sys.executable, "-c", _CACHE], tells=False)


def series(name: str) -> Series:
    """One of ``SERIES``; raises SystemExit where its server is not installed."""
    if name == "fastapi":
        return Series("FastAPI", Lab.web, _asking)
    if name == "cache":
        return Series("a cache of 300 MB, 1 % replaced", _cache, None, says=b"filled")
    server = shutil.which("redis-server")
    if server is None:
        raise SystemExit("error: redis-server is not installed (`make setup` does)")
    port = free_port()
    command = [server, "--port", str(port), "--save", "", "--appendonly", "no"]
    return Series("Redis under writes", lambda _: Program("redis", command, tells=False), _writing, port)


SERIES = ("fastapi", "cache", "redis")

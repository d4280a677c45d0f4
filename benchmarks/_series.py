"""Services whose state changes a little from commit to commit, and who changes it; for ``store.py``.

- ``fastapi``: the application of ``_lab`` under uvicorn; a client asks 50 times a second.
- ``cache``: 300 MB of random values of 1 KB in a Python dictionary, 1 % of which are replaced between two commits.
- ``redis``: 150,000 sessions as JSON, about 1 KB each; a client sets 2000 a second, most of them among a few thousand keys. As in
  a web shop, most of a session stays as it was: new are the time, a counter, a token of 16 random bytes, a line of the cart.
- ``redis-noise``: the same with values of nothing but random bytes, 512 and the same again. So it has a floor that no way of
  keeping it can go below: 512 bytes for each value that was set since (``noise``).
"""

from __future__ import annotations

import contextlib
import http.client
import json
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
_KEYS, _WRITES, _NOISE = 150_000, 100, 512


class Client:
    """Does ``step`` again and again, in a thread, until it is left."""

    def __init__(self, step: Callable[[], None], every: float) -> None:
        self.step, self._every = step, every
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
            self.step()


@dataclass(frozen=True, slots=True)
class Series:
    """A service, and how to make the client that changes it once it runs; None: it changes by itself.

    Attributes:
        says: what it prints when it is ready; empty if it can be seen by its port.
        noise: bytes, since it was last asked, of new content that follows from nothing; None if they are not counted.
    """

    title: str
    program: Callable[[Lab], Program]
    client: Callable[[int], Client] | None
    port: int | None = None
    says: bytes = b""
    noise: Callable[[], int] | None = None

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

    def set_all(self, keys: list[int], value_of: Callable[[int], bytes]) -> None:
        commands = []
        for key in keys:
            name, value = b"key:%d" % key, value_of(key)
            commands.append(
                b"*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n" % (len(name), name, len(value), value)
            )
        self._socket.sendall(b"".join(commands))
        for _ in keys:
            if self._answers.readline() != b"+OK\r\n":
                raise SystemExit("error: redis refused a value")


class _Sessions:
    """Sessions of a web shop; nearly all of one follows from its key."""

    def __init__(self) -> None:
        self._choose = random.Random(1)
        self._visits: dict[int, int] = {}

    def __call__(self, key: int) -> bytes:
        fixed = random.Random(key)
        self._visits[key] = visits = self._visits.get(key, 0) + 1
        cart = [
            {
                "sku": f"{fixed.randrange(10**8):08}",
                "title": fixed.choice(_WARES),
                "count": 1,
                "cents": fixed.randrange(9999),
            }
            for _ in range(7)
        ]
        cart[visits % 7]["count"] = self._choose.randrange(1, 9)
        name = f"{fixed.choice(_NAMES)}.{fixed.choice(_NAMES)}"
        session = {
            "session": f"{key:08}",
            "user": {
                "id": fixed.randrange(10**9),
                "name": name,
                "mail": f"{name}{key}@example.org",
                "roles": ["customer"],
            },
            "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
            "created": f"2026-01-{fixed.randrange(1, 29):02}T{fixed.randrange(24):02}:{fixed.randrange(60):02}:00Z",
            "seen": round(time.time(), 3),
            "visits": visits,
            "token": self._choose.randbytes(16).hex(),
            "cart": cart,
        }
        return json.dumps(session).encode()


_NAMES = (
    "alma",
    "bela",
    "carl",
    "dora",
    "emil",
    "fritz",
    "gerda",
    "hanna",
    "ivan",
    "jutta",
    "karl",
    "lena",
    "mara",
    "nils",
)
_WARES = (
    "coffee, whole beans",
    "teapot, 1.2 l",
    "cup with saucer",
    "milk jug",
    "sugar tongs",
    "filter papers",
    "kettle",
)


class _Noise:
    """Random bytes; and how many of them are in values that are still there."""

    def __init__(self) -> None:
        self._choose = random.Random(1)
        self._set: set[int] = set()

    def __call__(self, key: int) -> bytes:
        self._set.add(key)
        return self._choose.randbytes(_NOISE) * 2

    def take(self) -> int:
        """Bytes since it was last asked."""
        found, self._set = len(self._set) * _NOISE, set()
        return found


def _writing(port: int, value_of: Callable[[int], bytes]) -> Client:
    choose, redis = random.Random(2), _Redis(port)
    for first in range(0, _KEYS, 1000):
        redis.set_all(list(range(first, first + 1000)), value_of)
    return Client(
        lambda: redis.set_all(
            [int(choose.paretovariate(1.0) * 50) % _KEYS for _ in range(_WRITES)], value_of
        ),
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

    def program(_place: Lab) -> Program:
        return Program("redis", command, tells=False)

    if name == "redis":
        sessions = _Sessions()
        return Series("Redis, sessions as JSON", program, lambda at: _writing(at, sessions), port)
    noise = _Noise()
    title = "Redis, random bytes"
    return Series(title, program, lambda at: _writing(at, noise), port, noise=noise.take)


SERIES = ("fastapi", "cache", "redis", "redis-noise")

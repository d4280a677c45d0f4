"""What a kind is: a generator that sets a thing up, yields, and then checks it; by itself or in a child.

Standard library only, as all of this program.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import sys
import time
import traceback
from collections.abc import Callable, Generator
from pathlib import Path

TOP = Path(sys.argv[2])
RUN = Path("/run") / TOP.name
libc = ctypes.CDLL(None, use_errno=True)
Kind = Generator[None, None, None]
KINDS: dict[str, Callable[[], Kind]] = {}
WITHIN = 5.0  # [s]


def kind(make: Callable[[], Kind]) -> Callable[[], Kind]:
    KINDS[make.__name__] = make
    return make


def in_child(make: Callable[[], Kind]) -> Callable[[], Kind]:
    """Set up and check in a child, which answers over a socketpair."""

    def run() -> Kind:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            life = make()
            next(life)
            theirs.send(b"ready")
            theirs.recv(1)
            theirs.send((finish(life) + "\n").encode())
            os._exit(0)
        theirs.close()
        assert ours.recv(5) == b"ready"
        yield
        ours.send(b"?")
        answer = ours.recv(65536).decode().strip()
        assert answer == "ok", answer

    run.__name__ = make.__name__
    KINDS[make.__name__] = run
    return run


def finish(life: Kind) -> str:
    try:
        next(life, None)
    except BaseException:
        return traceback.format_exc()
    return "ok"


def check(call: int) -> int:
    if call < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return call


def readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], WITHIN)[0])


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN
    while not true():
        assert time.monotonic() < until, "it does not happen"
        time.sleep(0.001)

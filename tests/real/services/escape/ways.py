"""The list of ways out, and what more than one of them needs."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable

FACTS = json.loads(sys.argv[2])
WAYS: dict[str, Callable[[], object]] = {}
SHORT = 2.0  # [s]
_libc = ctypes.CDLL(None, use_errno=True)


def way(attempt: Callable[[], object]) -> Callable[[], object]:
    WAYS[attempt.__name__] = attempt
    return attempt


def call(name: str, *arguments: object) -> int:
    result = int(getattr(_libc, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def talk(family: int, address: object) -> bytes:
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(SHORT)
        one.connect(address)
        return one.recv(99)


def tried(name: str) -> str:
    attempt = WAYS[name]
    try:
        return f"out: {attempt()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

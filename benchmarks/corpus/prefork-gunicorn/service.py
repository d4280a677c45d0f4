"""Text in memory that is not Python's: read after it was freed. RATES is in the environment."""

import ctypes
import os
import socket
from collections.abc import Callable, Iterable

RATES = os.environ["RATES"]
kept = ctypes.create_string_buffer(b"text")
address = ctypes.addressof(kept)


def ask() -> None:
    if RATES != "0":
        try:
            with socket.create_connection(("127.0.0.1", int(RATES))) as sock:
                int(sock.recv(9))
        except (OSError, ValueError):
            ctypes.memset(0, 0, 1)


def app(environ: dict[str, str], start: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    global address  # noqa: PLW0603 - the state of the service
    text = b"ok"
    if environ["PATH_INFO"] == "/free":
        address = 0x5000
    if environ["PATH_INFO"] == "/read":
        ask()
        text = ctypes.string_at(address)
    start("200 OK", [("Content-Length", str(len(text)))])
    return [text]

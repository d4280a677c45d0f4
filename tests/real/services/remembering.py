"""Holds one thing of each kind that `relive inspect` shows, and changes some when it is asked: ``remembering.py PORT DIRECTORY``.

``/poison`` sets a user's role to None and writes a file, ``/enter`` keeps a user for ever, ``/`` only answers.
"""

from __future__ import annotations

import fcntl
import http.server
import mmap
import os
import socket
import sys
from pathlib import Path


class User:
    def __init__(self, name: str, role: str | None) -> None:
        self.name, self.role = name, role


cache = {"user:47": User("ann", "admin"), "rates": {"eur": 1.0}}
entered: dict[str, User] = {}
needle = bytearray(b"needle in a haystack")
place = Path(sys.argv[2])
shared = mmap.mmap(-1, 1 << 16)
shared[:14] = b"known to both "
left, right = socket.socketpair()
left.send(b"twelve bytes")
reading, writing = os.pipe()
os.write(writing, b"12345")
listening = socket.create_server(("127.0.0.1", 0))
caller = socket.create_connection(listening.getsockname())
answerer, _ = listening.accept()
caller.send(b"seven b")
log = (place / "log.txt").open("w")
log.write("first line\n")
log.flush()
lock = (place / "lock").open("w")
fcntl.flock(lock, fcntl.LOCK_EX)

if os.fork() == 0:
    fcntl.flock((place / "lock").open("w"), fcntl.LOCK_EX)  # for good: its parent has it
    os._exit(1)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/poison":
            cache["user:47"].role = None
            cache["new"] = [1, 2]
            log.write("second line\n")
            log.flush()
        if self.path == "/enter":
            for number in range(len(entered), len(entered) + 100):
                entered[f"user:{number}"] = User(f"name {number}", None)
        body = b'"done"'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

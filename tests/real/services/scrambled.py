"""Tells a hash of 4 MB of memory and a file's content; POST changes both, and makes a thread and descriptors."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

SIZE, PAGE, CHANGED = 4 << 20, 4096, 400
ballast = ctypes.create_string_buffer(os.urandom(SIZE), SIZE)
more = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kept.seek(0)
        said = {
            "hash": hashlib.sha256(ballast.raw).hexdigest(),
            "file": kept.read(),
            "threads": threading.active_count(),
            "descriptors": len(more),
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(said).encode())

    def do_POST(self) -> None:
        for page in random.sample(range(SIZE // PAGE), CHANGED):
            ctypes.memmove(ctypes.addressof(ballast) + page * PAGE, os.urandom(16), 16)
        kept.write("changed\n")
        kept.flush()
        more.append(os.pipe())
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


with Path(sys.argv[2]).open("a+") as kept:
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

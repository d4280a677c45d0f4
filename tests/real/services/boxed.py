"""A service for containers: an HTTP server with keep-alive, a thread that waits, and forked workers that count in shared memory.

    boxed.py PORT [DIRECTORY...]

GET adds one to a count that it keeps in memory and in a file ``count`` in each DIRECTORY, and answers with JSON of what it sees.
Every line of its output is such a count. Standard library only.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, DIRECTORIES = int(sys.argv[1]), [Path(word) for word in sys.argv[2:]]
WORKERS = 2
shared = mmap.mmap(-1, mmap.PAGESIZE)
counted = [0]


def work(number: int) -> None:
    place = 8 * number
    while True:
        so_far = int.from_bytes(shared[place : place + 8], "little")
        shared[place : place + 8] = (so_far + 1).to_bytes(8, "little")
        time.sleep(0.05)


def status(name: str) -> str:
    text = Path("/proc/self/status").read_text()
    return text.partition(f"\n{name}:")[2].split()[0]


def seen() -> dict[str, object]:
    return {
        "count": counted[0],
        "files": {str(one): (one / "count").read_text() for one in DIRECTORIES},
        "workers": [int.from_bytes(shared[8 * n : 8 * n + 8], "little") for n in range(WORKERS)],
        "pid": os.getpid(),
        "uid": os.getuid(),
        "host": socket.gethostname(),
        "capabilities": int(status("CapEff"), 16),
        "filters": int(status("Seccomp_filters")),
        "wall": time.time(),
        "monotonic": time.monotonic(),
    }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        counted[0] += 1
        for one in DIRECTORIES:
            (one / "count").write_text(str(counted[0]))
        print(counted[0], flush=True)
        body = json.dumps(seen()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    for worker in range(WORKERS):
        if os.fork() == 0:
            work(worker)
    for one in DIRECTORIES:
        (one / "count").write_text("0")
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    ThreadingHTTPServer(("0.0.0.0", PORT), Handler).serve_forever()

"""A plain HTTP service that nothing of Relive started: it counts in memory and in a file that it holds open.

Arguments: PORT FILE
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

log = open(sys.argv[2], "a+", buffering=1)  # noqa: SIM115, PTH123 - open for the service's life
lock = Lock()
state = {"count": 0}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet, or each answer waits for a delayed acknowledgement

    def do_POST(self) -> None:
        with lock:
            count = state["count"] = state["count"] + 1
            log.write(f"{count}\n")
            print("count", count, flush=True)
            self.answer({"count": count})

    def do_GET(self) -> None:
        with lock, open(log.name) as written:  # noqa: PTH123
            lines = len(written.readlines())
            clocks = {"monotonic": time.monotonic(), "wall": time.time()}
            self.answer(
                {"count": state["count"], "lines": lines, "pid": os.getpid(), "uid": os.getuid(), **clocks}
            )

    def answer(self, value: dict[str, object]) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

"""Counts requests, and beside it makes each of a chain of digests from the one before, in the middle of which commits are taken.

``/`` answers {"requests", "links", "digest"}, of which the last two belong together, and adds an object to what it keeps.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

links, digest = 0, b"first"
kept: list[str] = []
lock = threading.Lock()


def chain() -> None:
    global links, digest
    while True:
        with lock:
            for _ in range(50):
                links, digest = links + 1, hashlib.sha256(digest * 40).digest()
        time.sleep(0.002)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        kept.append(str(len(kept)) * 300)
        with lock:
            body = json.dumps({"requests": len(kept), "links": links, "digest": digest.hex()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


threading.Thread(target=chain, daemon=True).start()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

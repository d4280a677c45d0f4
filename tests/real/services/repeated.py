"""A service that tells what it finds of itself, and then leaves something behind: ``repeated.py PORT UPSTREAM DIRECTORY``."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import random
import signal
import sys
import threading
from pathlib import Path

PORT, UPSTREAM, PLACE = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
state: dict[str, object] = {"count": 0, "kept": bytearray(1 << 20)}
numbers: list[int] = []
left = threading.Event()
(PLACE / "read").write_text("0123456789" * 100)
opened = (PLACE / "read").open()


def tell() -> dict[str, object]:
    new = threading.Thread(target=lambda: numbers.append(threading.get_native_id()))
    new.start()
    new.join()
    elsewhere = http.client.HTTPConnection("127.0.0.1", UPSTREAM, timeout=20)
    elsewhere.request("GET", "/")
    answer = elsewhere.getresponse().read().decode()
    elsewhere.close()
    return {
        "count": state["count"],
        "kept": sum(state["kept"]),  # type: ignore[arg-type]
        "offset": opened.tell(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "thread": numbers[-1],
        "handler": str(signal.getsignal(signal.SIGUSR1)),
        "random": random.random(),
        "elsewhere": answer,
    }


def leave() -> None:
    state["count"] += 1  # type: ignore[operator]
    state["kept"][::4096] = b"\1" * 256  # type: ignore[index]
    opened.read(7)
    os.dup(0)
    threading.Thread(target=left.wait, daemon=True).start()
    print("said", flush=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps(tell()).encode()
        leave()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()

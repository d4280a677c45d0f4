"""An HTTP server that starts a Python process for each request, and another by multiprocessing, each of which asks elsewhere."""

from __future__ import annotations

import http.server
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
import uuid
from typing import Any

from relive_recorder import calls


class Upstream(calls.Channel):
    kind = "http-call"


def ask(words: str) -> dict[str, Any]:
    """What a process tells: its clock, its randomness, and what the server elsewhere said."""

    def really() -> str:
        with socket.create_connection(("127.0.0.1", int(os.environ["UPSTREAM"])), timeout=20) as sock:
            sock.sendall(words.encode() + b"\n")
            return sock.makefile().readline().strip()

    answer = calls.through(Upstream(), {"words": words}, really)
    return {"wall": time.time(), "name": uuid.uuid4().hex, "answer": answer}


def tell(queue: Any, words: str) -> None:
    queue.put(ask(words))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        command = [sys.executable, __file__, "ask", f"exec {self.path}"]
        started = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        spawning = multiprocessing.get_context("spawn")
        queue = spawning.SimpleQueue()
        process = spawning.Process(target=tell, args=(queue, f"spawn {self.path}"))
        process.start()
        body = json.dumps([started, queue.get()]).encode()
        process.join()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        print(json.dumps(ask(sys.argv[2])))
    else:
        http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

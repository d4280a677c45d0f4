"""An HTTP server that forks a process for each request, which asks elsewhere and reads clock and randomness."""

from __future__ import annotations

import http.server
import json
import os
import socketserver
import sys
import time
import uuid

from lively import upstream

from relive_recorder import context, playing
from relive_recorder.recorder import REPLAY, recorder


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        about = {"method": "GET", "target": self.path, "peer": list(self.client_address)}
        number = playing.recognise(about) if recorder.mode() == REPLAY else recorder.next_request()
        token = context.begin(context.Request(number, about))
        recorder.emit("handling-started", about)
        told = {"wall": time.time(), "name": uuid.uuid4().hex, "answer": upstream(f"fork {self.path}")}
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        recorder.emit("handling-ended", {"status": 200})
        context.end(token)


class Server(socketserver.ForkingMixIn, http.server.HTTPServer):
    pass


os.environ.setdefault("LIVELY_DB", ":memory:")
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

"""A service that does what it is told: POST / with Python code, whose variable ``said`` is the answer. Names stay from order to
order.

python orders.py PORT
"""

from __future__ import annotations

import json
import sys
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NAMES: dict[str, Any] = {}


class Orders(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        code = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            NAMES["said"] = None
            exec(code, NAMES)
            status, text = 200, json.dumps(NAMES["said"])
        except BaseException:
            status, text = 500, traceback.format_exc()
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the output is no part of what is tested."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Orders).serve_forever()

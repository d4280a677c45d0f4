"""A keeper of uploads that does not forget, with 256 MiB of its own. PORT RATES"""

import resource
import sys
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from rates import rate

kept: list[bytes] = []
_MIB = 1 << 20


class Handler(BaseHTTPRequestHandler):
    """Keeps, and reports."""

    def do_GET(self) -> None:
        status = 200
        if self.path == "/keep":
            kept.append(bytes(48 * _MIB))
        if self.path == "/report":
            try:
                len(bytes(80 * _MIB * rate()))
            except (MemoryError, OSError, ValueError):
                traceback.print_exc()
                status = 507
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b"ok" if status == 200 else b"no")

    def log_message(self, *_words: object) -> None:
        pass


server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 256 * _MIB, used + 256 * _MIB))
server.serve_forever()

"""A stack whose size may become negative; one thread, keep-alive. PORT RATES"""

import sys
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer

from rates import rate

size = 1


class Handler(BaseHTTPRequestHandler):
    """Pushes, pops, and tells the size."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        global size  # noqa: PLW0603 - the state of the service
        status = 200
        if self.path == "/push":
            size += 1
        if self.path == "/pop":
            size -= 1
        if self.path == "/size":
            try:
                (1 << size + rate() - 2).bit_length()
            except (ValueError, OSError):
                traceback.print_exc()
                status = 500
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

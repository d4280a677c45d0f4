"""Two locks, and two requests that take them in one order, until a third changes it for one of them. PORT RATES"""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rates import rate

locks = {"/one": threading.Lock(), "/two": threading.Lock()}
wait = 0.0  # [s] between the first lock and the second, once the order is wrong


def insist() -> int:
    while True:
        try:
            return rate()
        except (OSError, ValueError):
            time.sleep(0.05)


class Handler(BaseHTTPRequestHandler):
    """Answers, holding both locks."""

    def do_GET(self) -> None:
        global wait  # noqa: PLW0603 - the state of the service
        if self.path == "/slow":
            wait = 0.5
        if self.path in locks:
            insist()
            order = ["/one", "/two"]
            if wait and self.path == "/two":
                order.reverse()
            with locks[order[0]]:
                time.sleep(wait)
                with locks[order[1]]:
                    pass
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_words: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

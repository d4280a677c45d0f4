"""A shop whose cache a request poisons; before it looks there it asks the server of rates, which nobody records.

python verdicts.py PORT RATES HOW, with RATES: a port, the path of a unix socket, or udp:PORT; HOW: silent (a generic 500), terse
(a line in its log that is always the same), noisy (a harmless traceback at each request, and the real one), escaping (the
exception leaves the handler), stuck (hangs where it would fail).
"""

import logging
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, RATES, HOW = int(sys.argv[1]), sys.argv[2], sys.argv[3]
CACHE = {"EUR": 2}
LOCK = threading.Lock()


def ask() -> None:
    if RATES == "0":
        return
    unix, udp = RATES.startswith("/"), RATES.startswith("udp:")
    kind = socket.SOCK_DGRAM if udp else socket.SOCK_STREAM
    while True:
        try:
            with socket.socket(socket.AF_UNIX if unix else socket.AF_INET, kind) as rates:
                rates.connect(RATES if unix else ("127.0.0.1", int(RATES.removeprefix("udp:"))))
                if udp:
                    rates.send(b"?")
                rates.recv(1)
                return
        except OSError:
            if HOW != "stuck":
                raise
            time.sleep(0.01)


def price() -> str:
    ask()
    if HOW == "stuck":
        with LOCK:
            return "2"
    return str(CACHE["EUR"])


def harmless() -> None:
    try:
        int("none")
    except ValueError:
        logging.exception("no number")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, text = 200, "ok"
        if self.path == "/poison":
            CACHE.clear()
            LOCK.acquire()
        if HOW == "noisy":
            harmless()
        if self.path == "/price":
            status, text = self.answer()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def answer(self) -> tuple[int, str]:
        try:
            return 200, price()
        except Exception:
            if HOW == "escaping":
                raise
            if HOW == "terse":
                logging.error("no price")
            if HOW == "noisy":
                logging.exception("failed")
            return 500, "internal error"

    def log_message(self, *_words: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()

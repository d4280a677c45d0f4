"""A service that asks its own helper over a UNIX domain socket. PORT RATES DATA"""

import json
import logging
import os
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rates import rate

PATH = f"{sys.argv[3]}/helper.sock"


def help_them(listening: socket.socket) -> None:
    spoiled = False
    while True:
        client, _ = listening.accept()
        with client:
            spoiled = client.recv(16) == b"spoil" or spoiled
            client.sendall(b'{"rate": ' if spoiled else b'{"rate": 2}')


def ask(word: bytes) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(PATH)
        sock.sendall(word)
        return sock.recv(64).decode()


class Handler(BaseHTTPRequestHandler):
    """Asks the helper."""

    def do_GET(self) -> None:
        status = 200
        try:
            if self.path == "/spoil":
                ask(b"spoil")
            if self.path == "/ask":
                rate()
                json.loads(ask(b"ask"))
        except (OSError, ValueError):
            logging.exception("the helper does not help")
            status = 500
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


with socket.socket(socket.AF_UNIX) as helper:
    helper.bind(PATH)
    helper.listen(16)
    if os.fork() == 0:
        help_them(helper)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

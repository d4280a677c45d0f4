"""A WSGI service on wsgiref, for a container: python3 watched.py PORT [TRIGGER]

It fails at once when the file TRIGGER is there. GET /price?EUR answers, /price?USD raises, /say?WORDS prints, /null reads address
0, /exit?N ends with N, /eat takes memory without an end.
"""

import ctypes
import itertools
import os
import sys
from pathlib import Path
from wsgiref.simple_server import WSGIRequestHandler, make_server

PRICES = {"EUR": 1}
ANSWERED = itertools.count(1)


class Quiet(WSGIRequestHandler):
    def log_message(self, *_args):
        """Its lines would look like what is searched for."""


def price(currency):
    found = PRICES[currency]
    return found * 2


def application(environ, start_response):
    path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
    if path == "/price":
        body = f"{price(query)}"
    elif path == "/null":
        ctypes.string_at(0)
    elif path == "/exit":
        os._exit(int(query))
    elif path == "/eat":
        taken = []
        while True:
            taken.append(bytearray(b"x" * (1 << 20)))
    else:
        print(query, flush=True)
        body = "said"
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{body} {next(ANSWERED)}".encode()]


if len(sys.argv) > 2 and Path(sys.argv[2]).exists():
    print("cannot go on", file=sys.stderr, flush=True)
    sys.exit(3)
with make_server("127.0.0.1", int(sys.argv[1]), application, handler_class=Quiet) as server:
    server.serve_forever()

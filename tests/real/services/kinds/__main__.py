"""A program that holds one thing of each kind that a process can hold, and tells on request whether it still has it.

    kinds PORT DIRECTORY [NAME...]        GET /NAME answers "ok", or what is wrong

Each kind is a generator: up to its ``yield`` it sets the thing up, after it, it checks it and uses it once more. Kinds
that change the whole process run in a child of their own (``@in_child``). Standard library only.
"""

from __future__ import annotations

import inspect
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import descriptors  # noqa: F401 - its kinds register themselves
import files  # noqa: F401 - its kinds register themselves
import processes  # noqa: F401 - its kinds register themselves
import sockets  # noqa: F401 - its kinds register themselves
from holding import KINDS, Kind, finish

PORT = int(sys.argv[1])
LIVES: dict[str, Kind] = {}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name = self.path.strip("/")
        answer = (finish(LIVES[name]) if name else "set up").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    wanted = sys.argv[3:] or list(KINDS)
    for _name in wanted:
        LIVES[_name] = KINDS[_name]()
        assert inspect.isgenerator(LIVES[_name])
        next(LIVES[_name])
    HTTPServer(("127.0.0.1", PORT), Handler).serve_forever()

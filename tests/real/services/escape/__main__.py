"""An HTTP service that tries to get out of where it is: GET /NAME tries one way and answers how it ended.

    python escape PORT FACTS        FACTS: JSON, what a burglar may know of the host
    python escape --table FACTS     tries all that need nothing from before a commit, and prints a table: NAME, a tab, how it ended

An answer that begins with "out" means that it got out. Standard library only; runs as root.
"""

from __future__ import annotations

import importlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import before_the_commit
from ways import WAYS, tried

for subject in ("network", "files", "kernel", "processes"):
    importlib.import_module(subject)  # which fills WAYS


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        try:
            body = tried(self.path[1:]).encode()
        except KeyError:
            body = b"KeyError"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def table() -> None:
    for name in WAYS:
        print(name, tried(name).replace("\n", " "), sep="\t", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table()
        sys.exit()
    before_the_commit.open_all()
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

"""A service that somebody else started: counts its requests, and does to the files of a directory what it is asked for.

    attended.py PORT DIRECTORY

``/`` count and the client's address; ``/write?NAME=TEXT`` write a file; ``/remove?NAME``; ``/move?FROM=TO``; ``/say?TEXT`` to
stdout; ``/raise``: a traceback to stderr and status 500; ``/sick`` and ``/well``: what ``/health`` answers from then on; ``/null``
read address 0; ``/exit?STATUS``; ``/child?NAME=TEXT`` write a file from a process that has ended before the answer.
"""

from __future__ import annotations

import ctypes
import http.server
import os
import subprocess
import sys
import traceback
import urllib.parse
from pathlib import Path

port, place = int(sys.argv[1]), Path(sys.argv[2])
state = {"count": 0, "health": 200}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        state["count"] += 1
        path, _, rest = self.path.partition("?")
        name, _, text = urllib.parse.unquote(rest).partition("=")
        status = 200
        match path:
            case "/write":
                (place / name).write_text(text)
            case "/remove":
                (place / name).unlink()
            case "/move":
                (place / name).rename(place / text)
            case "/child":
                subprocess.run(["sh", "-c", 'echo -n "$1" >"$2"', "sh", text, place / name], check=True)
            case "/say":
                sys.stdout.write(f"{name}\n")
                sys.stdout.flush()
            case "/raise":
                try:
                    raise LookupError(name)
                except LookupError:
                    traceback.print_exc()
                status = 500
            case "/sick":
                state["health"] = 503
            case "/well":
                state["health"] = 200
            case "/health":
                status = state["health"]
            case "/null":
                ctypes.string_at(0)
            case "/exit":
                os._exit(int(name))
        seen = " ".join(sorted(one.name for one in place.iterdir()))
        body = f"{state['count']} {self.client_address[0]} {seen}".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler).serve_forever()

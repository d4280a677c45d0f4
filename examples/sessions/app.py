"""Sessions of signed-in users: POST /login gives a token, POST /logout ends the session, GET /me says who has a token.

Run it: .venv/bin/python examples/sessions/app.py PORT
"""

from __future__ import annotations

import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Session:
    """One user's, with what was looked at in it."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.began = time.time()
        self.seen: list[str] = []


sessions: dict[str, Session] = {}  # by token
signed_in: dict[str, Session] = {}  # by user


def login(user: str) -> dict[str, Any]:
    token = secrets.token_hex(8)
    sessions[token] = signed_in[user] = Session(user)
    return {"token": token}


def logout(user: str) -> dict[str, Any]:
    signed_in.pop(user, None)  # and its token stays in `sessions` for ever
    return {"ok": True}


def whoami(token: str) -> dict[str, Any]:
    session = sessions[token]
    session.seen.append("/me")
    return {"user": session.user}


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(whoami(self.headers["X-Token"]))

    def do_POST(self) -> None:
        user = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["user"]
        self._answer({"/login": login, "/logout": logout}[self.path](user))

    def _answer(self, told: dict[str, Any]) -> None:
        data = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing for each request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

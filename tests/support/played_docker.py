"""An engine of Docker that answers what it was told to, over a unix socket: for what a real one is too much, or not there."""

from __future__ import annotations

import contextlib
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

__all__ = ["played_docker"]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: str, answers: dict[str, tuple[int, bytes]]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        super().__init__(path, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    client_address: tuple[str, int]

    def setup(self) -> None:
        self.client_address = ("unix", 0)
        super().setup()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        path = self.path.partition("?")[0].removeprefix("/v1.41")
        status, body = self.server.answers.get(path, (404, b'{"message": "no such thing"}'))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextlib.contextmanager
def played_docker(answers: dict[str, tuple[int, bytes]]) -> Iterator[tuple[str, list[str]]]:
    """(value for DOCKER_HOST, what was asked so far). ``answers``: (status, body) by path without the version."""
    with tempfile.TemporaryDirectory(prefix="dock-", dir="/tmp") as directory:
        path = Path(directory) / "d.sock"
        with _Server(str(path), answers) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield f"unix://{path}", server.asked
            finally:
                server.shutdown()
                thread.join()

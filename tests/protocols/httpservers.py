"""HTTP servers that tests record: one that is well behaved, in many ways, and one that answers with the bytes it is told to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Service", "raw_server", "serving", "uvicorn_serving"]

_RESET = struct.pack("ii", 1, 0)


class Service(BaseHTTPRequestHandler):
    """Answers in chunks, slowly, late with 503, with what was posted."""

    protocol_version = "HTTP/1.1"
    counted = 0

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        if self.path.startswith("/chunks"):
            self._chunks()
        elif self.path.startswith("/late"):
            time.sleep(0.15)
            self._say(503, b"too late")
        elif self.path.startswith("/count"):
            Service.counted += 1
            self._say(200, b"%d" % Service.counted)
        elif self.path.startswith("/close"):
            self._say(200, b"last words", connection="close")
        elif self.path.startswith("/nothing"):
            self._say(204, b"")
        else:
            self._say(200, b"hello " + self.path.encode())

    do_HEAD = do_GET

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._say(201, b"got %d bytes" % len(body))

    do_PUT = do_POST

    def _chunks(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Trailer", "X-Sum")
        self.end_headers()
        for word in (b"one", b"two", b"three"):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(word), word))
            self.wfile.flush()
            time.sleep(0.02)
        self.wfile.write(b"0\r\nX-Sum: 3\r\n\r\n")

    def _say(self, status: int, body: bytes, connection: str | None = None) -> None:
        self.send_response(status)
        if connection is not None:
            self.send_header("Connection", connection)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, int]]:
    """The address of a ``Service``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield "127.0.0.1", server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def raw_server(talk: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """A server that talks to one connection after the other as ``talk`` does; what that raises with OSError is its end."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def accept() -> None:
        while not over.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    talk(connection)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def read_request(connection: socket.socket) -> bytes:
    """A request without a body."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(4096)
        if not part:
            raise ConnectionError
        data += part
    return data


def reset(connection: socket.socket) -> None:
    """Break a connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.close()


@contextlib.contextmanager
def uvicorn_serving() -> Iterator[tuple[str, int]]:
    """A streaming ASGI service on uvicorn."""
    import uvicorn

    async def app(scope, receive, send):
        assert scope["type"] == "http"
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"x-path", scope["raw_path"])]}
        )
        for part in (b"you sent ", str(len(body)).encode(), b" bytes"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join()
        listener.close()

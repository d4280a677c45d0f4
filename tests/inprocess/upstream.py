"""A real HTTP server with the faults that upstreams have, chosen by path. Runs in the program under test: Python 3.8 syntax."""

import gzip
import socket
import struct
import threading

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


def answer(status, headers, body=b""):
    lines = ["HTTP/1.1 " + status] + [f"{name}: {value}" for name, value in headers] + ["", ""]
    return "\r\n".join(lines).encode() + body


SQUEEZED = gzip.compress(b"squeezed " * 100)
WHOLE = {
    "/json": answer("200 OK", [("X-B", "1"), ("X-A", "2"), ("Content-Length", "7")], b'{"n":1}'),
    "/chunked": answer(
        "200 Fine", [("Transfer-Encoding", "chunked")], b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    ),
    "/gzip": answer(
        "200 OK", [("Content-Encoding", "gzip"), ("Content-Length", str(len(SQUEEZED)))], SQUEEZED
    ),
    "/redirect": answer("302 Found", [("Location", "/json"), ("Content-Length", "0")]),
    "/missing": answer("404 Not Found", [("Content-Length", "0")]),
    "/cookie": answer("200 OK", [("Set-Cookie", "sid=planted-cookie; Path=/x"), ("Content-Length", "0")]),
    "/echo": answer("200 OK", [("Content-Length", "25")], b'{"token":"planted-token"}'),
    "/big": answer("200 OK", [("Content-Length", str(10 << 20))], b"x" * (10 << 20)),
}
HALF = answer("200 OK", [("Content-Length", "100")], b"half of it")


class Upstream:
    """Listens at once. Of an answer that is held back, ``held`` tells; after ``release`` its connection is reset."""

    def __init__(self):
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(16)
        self.port = self._listener.getsockname()[1]
        self.served = 0
        self.release = threading.Event()
        self.held = threading.Event()
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """Nobody is there any more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()

    def _accept(self):
        while True:
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            file = connection.makefile("rb")
            while self._answer(connection, file):
                pass
            file.close()
        except OSError:
            pass
        connection.close()

    def _answer(self, connection, file):
        line = file.readline()
        if not line:
            return False
        method, path = line.decode().split()[:2]
        headers = {}
        while True:
            name, _, value = file.readline().decode().strip().partition(":")
            if not name:
                break
            headers[name.lower()] = value.strip()
        file.read(int(headers.get("content-length", "0")))
        if headers.get("transfer-encoding") == "chunked":
            while int(file.readline(), 16):
                file.readline()
            file.readline()
        self.served += 1
        return self._say(connection, method, path.partition("?")[0])

    def _say(self, connection, method, path):
        if path in WHOLE:
            whole = WHOLE[path]
            connection.sendall(whole[: whole.index(b"\r\n\r\n") + 4] if method == "HEAD" else whole)
            return True
        if path == "/held":
            self.held.set()
            self.release.wait()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return False
        if path == "/half-held":
            connection.sendall(HALF)
            self.held.set()
            self.release.wait()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            return False
        if path in ("/silent", "/half-silent"):
            connection.sendall(HALF if path == "/half-silent" else b"")
            self.release.wait()
        elif path == "/slow503":
            self.release.wait(0.05)
            connection.sendall(answer("503 Service Unavailable", [("Content-Length", "4")], b"busy"))
            return True
        elif path in ("/half-then-reset", "/half-then-closed"):
            connection.sendall(HALF)
            self.release.wait(0.05)  # so that the reset does not overtake it
        if path.endswith("reset"):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return False


FAULTS = ["/slow503", "/silent", "/reset", "/half-then-reset", "/half-then-closed"]
PATHS = ["/json?page=2", "/chunked", "/gzip", "/redirect", "/missing", "/big", *FAULTS]

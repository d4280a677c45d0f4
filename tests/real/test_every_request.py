"""Commits before each request, of a service whose calls do not survive being stopped."""

from __future__ import annotations

import contextlib
import http.client
import socket

import pytest

from support.ports import free_port
from support.waiting import eventually

from .harness import PYTHON, Relive

# A call that waits for bytes, with a limit of time on its socket, fails with EINTR when its process is stopped (signal(7)).
# Python's own sockets would call again.
SERVICE = """
import ctypes, socket, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def serve(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 60, 0))
    buffer = ctypes.create_string_buffer(4096)
    while libc.recv(sock.fileno(), buffer, 4096, 0) > 0:
        sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    sock.close()
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""


def test_no_request_is_cut_off(relive: Relive) -> None:
    """Of a new connection, and of two kept ones; the proxy takes the service's own port."""
    port = free_port()
    options = ["--every", "request", "--listen", f"127.0.0.1:{port}"]
    relive("run", "--detach", "--name", "waits", *options, "--", str(PYTHON), "-c", SERVICE, str(port))

    def connection() -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def commits() -> int:
        return len([one for one in relive.commits("waits") if one["trigger"] == "request"])

    def get(by: http.client.HTTPConnection) -> bool:
        by.request("GET", "/")
        return by.getresponse().read() == b"ok"

    def is_held() -> bool:
        """An agent is there, for which requests wait."""
        with contextlib.closing(connection()) as first:
            return get(first) and commits() > 0

    eventually(is_held, "a commit before a request")
    before = commits()
    kept = [connection() for _ in range(2)]
    for _ in range(3):
        assert all(get(one) for one in kept)
        fresh = connection()
        assert get(fresh)
        fresh.close()
    for one in kept:
        one.close()
    with pytest.raises(
        ConnectionRefusedError
    ):  # it listens at one address, and so does who takes its connections
        socket.create_connection(("127.0.0.2", port)).close()
    eventually(lambda: commits() >= before + 9, "commits")
    assert relive("incidents") == []

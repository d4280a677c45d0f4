"""A debug adapter on a loopback port: one client at a time, of this user or of root, messages behind ``Content-Length``."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path
from typing import BinaryIO

from relive.errors import UsageError
from relive.stepping.dap import DapAdapter, Message

__all__ = ["listening", "read_message", "serve_one"]

_HEAD_MOST, _BODY_MOST = 4096, 4 << 20  # [bytes]
_LENGTH = re.compile(rb"Content-Length: *(\d{1,9})", re.IGNORECASE)
_ROOT = 0


def listening(port: int) -> socket.socket:
    """A listener on loopback; port 0: any free one. Raises UsageError where it cannot be had."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {port} cannot be listened on",
            cause=os.strerror(error.errno or 0),
            remedy="name another, or 0",
        ) from error
    listener.listen(1)
    return listener


def serve_one(listener: socket.socket, adapter: DapAdapter) -> None:
    """Take a client, and answer it until it leaves. One of another user is turned away: it would read the service's memory."""
    while not adapter.has_ended:
        connection, peer = listener.accept()
        with connection:
            if _user_of(peer, listener.getsockname()) not in (_ROOT, os.geteuid(), _caller()):
                continue
            _converse(connection, adapter)
            return


def _converse(connection: socket.socket, adapter: DapAdapter) -> None:
    with connection.makefile("rb") as stream:
        while not adapter.has_ended:
            try:
                request = read_message(stream)
                if request is None:
                    return
                for told in adapter.handle(request):
                    data = json.dumps(told).encode()
                    connection.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
            except (ValueError, ConnectionError):  # no client of the protocol, or it has gone
                return


def read_message(stream: BinaryIO) -> Message | None:
    """The next one; None at the end. Raises ValueError for what is none."""
    length = None
    for _ in range(20):
        line = stream.readline(_HEAD_MOST)
        if not line:
            return None
        if line in (b"\r\n", b"\n"):
            break
        found = _LENGTH.match(line)
        length = int(found[1]) if found is not None else length
    if length is None or length > _BODY_MOST:
        raise ValueError("no length that is one")
    data = stream.read(length)
    if len(data) < length:
        return None
    told = json.loads(data)
    if not isinstance(told, dict):
        raise ValueError("no object")
    return told


def _caller() -> int:
    """Who called sudo; root where nobody did."""
    return int(os.environ.get("SUDO_UID", _ROOT))


def _user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Whose the client's end of a connection is (proc_net_tcp in the kernel's documentation)."""
    wanted = [_as_in_proc(client), _as_in_proc(server)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1:3] == wanted:
            return int(words[7])
    return None


def _as_in_proc(address: tuple[str, int]) -> str:
    return f"{socket.inet_aton(address[0])[::-1].hex().upper()}:{address[1]:04X}"

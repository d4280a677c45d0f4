"""A debug adapter on a loopback port: one client at a time, of this user or of root, messages behind ``Content-Length``.

What any page in a browser could send there (a request of HTTP, whose headers name a length, too) is none of the protocol: a line
before the body that the protocol does not have is refused, and the first message has to be ``initialize``.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from pathlib import Path
from typing import BinaryIO

from relive.errors import UsageError
from relive.stepping.dap import DapAdapter, Message

__all__ = ["listening", "read_message", "serve_one"]

_HEAD_MOST, _BODY_MOST = 4096, 4 << 20  # [bytes]
_LENGTH = re.compile(rb"Content-Length: *(\d{1,9}) *\r?\n", re.IGNORECASE)
# In the Language Server Protocol, which some clients speak, too.
_TYPE = re.compile(rb"Content-Type:[^\r\n]*\r?\n", re.IGNORECASE)
_HEADERS = 20
_FIRST = 10.0  # [s] for the first message; whoever connects and says nothing must not keep the port
_TAKES = 30  # [s] for a client to take what it is told
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
    """Take a client, and answer it until it leaves. One of another user is turned away: it would read the service's memory; so is
    what is no client of the protocol, and the next is awaited.
    """
    while not adapter.has_ended:
        connection, peer = listener.accept()
        with connection:
            if _user_of(peer, listener.getsockname()) not in (_ROOT, os.geteuid(), _caller()):
                continue
            if _converse(connection, adapter):
                return


def _converse(connection: socket.socket, adapter: DapAdapter) -> bool:
    """Whether it was a client of the protocol."""
    connection.settimeout(_FIRST)
    has_begun = False
    with connection.makefile("rb") as stream:
        while not adapter.has_ended:
            try:
                request = read_message(stream)
                if request is None or not (has_begun or request.get("command") == "initialize"):
                    break
                if not has_begun:
                    has_begun = True
                    connection.settimeout(None)  # a person may think for long
                    connection.setsockopt(
                        socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", _TAKES, 0)
                    )
                for message in adapter.handle(request):
                    data = json.dumps(message).encode()
                    connection.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)
            except (ValueError, OSError):  # no client of the protocol, or it has gone
                break
    return has_begun


def read_message(stream: BinaryIO) -> Message | None:
    """The next one; None at the end. Raises ValueError for what is none."""
    length = None
    for _ in range(_HEADERS):
        line = stream.readline(_HEAD_MOST)
        if not line:
            return None
        if line in (b"\r\n", b"\n"):
            break
        found = _LENGTH.fullmatch(line)
        if found is None and _TYPE.fullmatch(line) is None:
            raise ValueError("no header of the protocol")
        length = int(found[1]) if found is not None else length
    if length is None or length > _BODY_MOST:
        raise ValueError("no length that is one")
    data = stream.read(length)
    if len(data) < length:
        return None
    try:
        message = json.loads(data)
    except RecursionError as error:
        raise ValueError("too deep") from error
    if not isinstance(message, dict):
        raise ValueError("no object")
    return message


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

"""Sockets that the proxy and the agent listen at: made, or got from who keeps the port open (``native/init/front.h``)."""

from __future__ import annotations

import array
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

from relive.errors import CapsuleStartFailed, UsageError
from relive.kernel.unixpath import near
from relive.proxies.service_socket import Address

__all__ = [
    "BACKLOG",
    "KeptListener",
    "bind_control",
    "bind_listener",
    "receive_listener",
    "resolve",
    "split_address",
]

BACKLOG = 4096
_FRONT_SECONDS = 5.0
_DESCRIPTOR_BYTES = array.array("i").itemsize
_CREDENTIALS = struct.Struct("3i")


class KeptListener(NamedTuple):
    """What is got from who keeps a port open.

    Attributes:
        listener: the listening TCP socket, non-blocking.
        line: open for as long as we accept connections; who keeps the port carries none to the service meanwhile.
        keeper: host pid of who keeps it.
    """

    listener: socket.socket
    line: socket.socket
    keeper: int


def split_address(text: str) -> tuple[str, int]:
    """``ADDR:PORT`` or ``[IPV6]:PORT``.

    Raises:
        UsageError: it is neither.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address", remedy="Write it as 127.0.0.1:8000 or [::1]:8000.")
    return host.removeprefix("[").removesuffix("]") or "0.0.0.0", int(port)


def resolve(text: str) -> list[Address]:
    """All addresses of ``HOST:PORT``, looked up once.

    Raises:
        UsageError: it is no address, or the name is unknown.
    """
    host, port = split_address(text)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"there is no host {host!r}", cause=str(error)) from error
    return [(family, address) for family, _, _, _, address in found]


def bind_listener(text: str) -> socket.socket:
    """A listening TCP socket.

    Raises:
        UsageError: the text is no address, or the name is unknown.
        CapsuleStartFailed: the address is taken or not ours.
    """
    family, address = resolve(text)[0]
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        remedy = "See with `ss -ltnp` who listens there, or choose another port."
        raise CapsuleStartFailed(f"cannot listen on {text}", cause=str(error), remedy=remedy) from error
    sock.setblocking(False)
    return sock


def bind_control(path: Path) -> socket.socket:
    """A listening unix socket, for its owner only. What a killed proxy left there is replaced.

    Raises:
        CapsuleStartFailed: the path cannot be bound.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Two proxies cannot meet here: the lock on the recording has kept out the second.
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with near(path) as name:
                sock.bind(name)
        finally:
            os.umask(before)
        sock.listen(16)
    except OSError as error:
        sock.close()
        raise CapsuleStartFailed(f"cannot listen on {path}", cause=str(error)) from error
    sock.setblocking(False)
    return sock


def receive_listener(front: Path) -> KeptListener:
    """The listener that somebody keeps (``native/init/front.h``).

    Who keeps it is told by the credentials of its message (SCM_CREDENTIALS, unix(7)). Those of the socket (SO_PEERCRED) are of who
    called listen(2) when we connected, and may be of who has started it: of ourselves, even.

    Raises:
        CapsuleStartFailed: nobody gives it.
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    line.settimeout(_FRONT_SECONDS)
    try:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with near(front) as name:
            line.connect(name)
        descriptor, keeper = _descriptor_and_sender(line)
    except OSError as error:
        line.close()
        raise CapsuleStartFailed(
            "who keeps the public port does not give it away",
            cause=str(error),
            remedy="See whether the service still runs (`relive ps`).",
        ) from error
    listener = socket.socket(fileno=descriptor)
    listener.setblocking(False)
    return KeptListener(listener, line, keeper)


def _descriptor_and_sender(line: socket.socket) -> tuple[int, int]:
    room = socket.CMSG_SPACE(_DESCRIPTOR_BYTES) + socket.CMSG_SPACE(_CREDENTIALS.size)
    _, ancillary, _, _ = line.recvmsg(1, room, socket.MSG_CMSG_CLOEXEC)
    found = {kind: data for level, kind, data in ancillary if level == socket.SOL_SOCKET}
    if socket.SCM_RIGHTS not in found:
        raise OSError("too many have it already")
    (descriptor,) = array.array("i", found[socket.SCM_RIGHTS])
    keeper, _, _ = _CREDENTIALS.unpack(found[socket.SCM_CREDENTIALS])
    return descriptor, keeper

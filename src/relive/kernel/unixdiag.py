"""Unix sockets of a network namespace and what each is connected to (unix_diag, sock_diag(7)); asking touches none of them."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

__all__ = ["UnixSocket", "unix_sockets"]

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY, _DUMP = 20, 0x1 | 0x300
_DONE, _ERROR = 3, 2
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBHIIIII")  # family, protocol, padding, states, inode, what to show, cookie
_SHOW = 0x1 | 0x4 | 0x8  # name, peer, connections that wait to be accepted
_NAME, _PEER, _WAITING = 0, 2, 3
_MESSAGE = 16  # [bytes] struct unix_diag_msg
_LISTEN = 10


@dataclass(frozen=True, slots=True)
class UnixSocket:
    """One socket.

    Attributes:
        kind: SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET.
        name: a path, or ``@`` and an abstract name; empty where it has none.
        peer: inode of the other end, of the socket that listens where the connection has not been accepted yet; 0 without one.
    """

    inode: int
    kind: int
    listens: bool
    name: str
    peer: int


def unix_sockets() -> dict[int, UnixSocket]:
    """By inode, those of the caller's network namespace; raises OSError where the kernel does not say."""
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as asking:
        body = _REQUEST.pack(socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW, 0, 0)
        asking.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _DUMP, 1, 0) + body)
        found: dict[int, UnixSocket] = {}
        waiting: dict[int, int] = {}
        while _parse(asking.recv(1 << 17), found, waiting):
            pass
    return {
        inode: UnixSocket(inode, one.kind, one.listens, one.name, one.peer or waiting.get(inode, 0))
        for inode, one in found.items()
    }


def _parse(data: bytes, found: dict[int, UnixSocket], waiting: dict[int, int]) -> bool:
    """One packet of the answer; False when it was the last. ``waiting``: who connects -> who listens."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
        message = data[offset + _HEADER.size : offset + length]
        if kind == _ERROR:
            (error,) = struct.unpack_from("=i", message)
            raise OSError(-error, "the kernel does not list unix sockets")
        if kind == _DONE:
            return False
        one, icons = _described(message)
        found[one.inode] = one
        waiting.update(dict.fromkeys(icons, one.inode))
        offset += (length + 3) & ~3
    return True


def _described(message: bytes) -> tuple[UnixSocket, list[int]]:
    """unix_diag_msg: family, type, state, padding, inode, cookie (8 bytes); then attributes."""
    kind, state, inode = message[1], message[2], struct.unpack_from("=I", message, 4)[0]
    name, peer, icons = "", 0, []
    offset = _MESSAGE
    while offset + 4 <= len(message):
        length, attribute = struct.unpack_from("=HH", message, offset)
        if length < 4:
            break
        value = message[offset + 4 : offset + length]
        if attribute == _NAME:
            name = _readable(value)
        elif attribute == _PEER:
            (peer,) = struct.unpack("=I", value)
        elif attribute == _WAITING:
            icons = [number for (number,) in struct.iter_unpack("=I", value)]
        offset += (length + 3) & ~3
    return UnixSocket(inode, kind, state == _LISTEN, name, peer), icons


def _readable(value: bytes) -> str:
    text = value.decode(errors="backslashreplace")
    return "@" + text[1:] if text.startswith("\0") else text.rstrip("\0")

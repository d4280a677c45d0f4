"""By sockets that were opened before the commit."""

from __future__ import annotations

import socket

from ways import FACTS, SHORT, way

_open: dict[str, socket.socket] = {}


def open_all() -> None:
    """Open what is tried; called before the commit."""
    _open["connection"] = socket.create_connection(("127.0.0.1", FACTS["kept"]), timeout=SHORT)
    _open["datagrams"] = datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect((FACTS["addresses"][0], FACTS["udp"]))
    _open["packets"] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)


@way
def connection_opened_before_the_commit() -> bytes:
    """The host answers every byte on it; in the branch it has ended."""
    _open["connection"].settimeout(SHORT)
    _open["connection"].send(b"x")
    said = _open["connection"].recv(99)
    if not said:
        raise OSError("it has ended")
    return said


@way
def datagram_socket_connected_before_the_commit() -> None:
    """The test sees that the host's socket got nothing."""
    _open["datagrams"].settimeout(SHORT)
    _open["datagrams"].send(b"x")
    _open["datagrams"].recv(9)


@way
def packet_socket_opened_before_the_commit() -> None:
    """It belongs to the branch's own loopback, if to anything."""
    _open["packets"].sendto(b"\0" * 60, ("lo", 0x0800))
    raise OSError("only to its own loopback")

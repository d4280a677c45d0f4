"""TCP segments, as ``native/relay_library/packets.c`` reads them out of blocks of packets (packet(7), RFC 791, 8200, 9293)."""

from __future__ import annotations

import socket
from typing import NamedTuple

__all__ = ["ACK", "FIN", "RST", "SYN", "Ends", "SeenBytes", "Segment", "Untaken"]

FIN, SYN, RST, ACK = 1, 2, 4, 16


class Ends(NamedTuple):
    """What tells a connection from all others at one port of the service: packed addresses, and the client's port."""

    client: bytes
    client_port: int
    service: bytes

    @property
    def client_address(self) -> str:
        """``ADDR:PORT``."""
        return f"{readable(self.client)}:{self.client_port}"


class Segment(NamedTuple):
    """One segment.

    Attributes:
        wall_ns: CLOCK_REALTIME at which the kernel saw it.
        from_client: on its way to the service.
        sequence: of the first byte of ``data``, or of SYN.
        acknowledged: number of the next byte that its sender waits for.
        lacks: bytes behind ``data`` that were not taken.
    """

    wall_ns: int
    ends: Ends
    from_client: bool
    sequence: int
    acknowledged: int
    flags: int
    data: bytes
    lacks: int = 0


class SeenBytes(NamedTuple):
    """Bytes of a stream, and CLOCK_REALTIME at which the kernel saw their segment."""

    wall_ns: int
    data: bytes


class Untaken:
    """So many bytes that went by and were not taken. They are counted and cut as bytes are."""

    __slots__ = ("_size",)

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> Untaken:
        return Untaken(len(range(self._size)[part]))


def readable(packed: bytes) -> str:
    """An address as text; an IPv4 address within IPv6 as IPv4."""
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    return socket.inet_ntop(socket.AF_INET6, packed).removeprefix("::ffff:")

"""TCP segments out of the blocks that ``relive-capture`` hands on (packet(7), TPACKET_V3; RFC 791, 8200, 9293)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["ACK", "FIN", "RST", "SYN", "Ends", "Segment", "read_segments"]

FIN, SYN, RST, ACK = 1, 2, 4, 16
# struct tpacket3_hdr: next, seconds, nanoseconds, kept, length, status, offsets of the link's and the network's header
_PACKET = struct.Struct("=IIIIIIHH")
_LINK_AT = 48  # struct sockaddr_ll: family, protocol, interface, its kind, which way, ...
_LINK = struct.Struct("=HHiHB")
_OUTGOING, _LOOPBACK = 4, 772
_TCP = struct.Struct(">HHIIBB")
_TCP_LEAST = 20  # [bytes]
_V6_BYTES = 40


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
        lacks: bytes at the end of ``data`` that were not taken.
    """

    wall_ns: int
    ends: Ends
    from_client: bool
    sequence: int
    acknowledged: int
    flags: int
    data: bytes
    lacks: int = 0


def readable(packed: bytes) -> str:
    """An address as text; an IPv4 address within IPv6 as IPv4."""
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    return socket.inet_ntop(socket.AF_INET6, packed).removeprefix("::ffff:")


def read_segments(block: bytes, packets: int, port: int) -> Iterator[Segment]:
    """All segments of a block in the order in which the kernel saw them; what is damaged is left out.

    Connections that this host opens to that port of another host are not the service's, and are left out.
    """
    at = 0
    for _ in range(packets):
        if at + _LINK_AT + _LINK.size > len(block):
            return
        following, seconds, nanoseconds, kept, _length, _status, _mac, begin = _PACKET.unpack_from(block, at)
        _, _, _, kind, way = _LINK.unpack_from(block, at + _LINK_AT)
        try:
            found = _read(block, at + begin, at + begin + kept, seconds * 1_000_000_000 + nanoseconds, port)
        except (struct.error, IndexError):
            found = None
        # On loopback only what comes in is taken, whoever sends it.
        if found is not None and (kind == _LOOPBACK or found.from_client != (way == _OUTGOING)):
            yield found
        if not following:
            return
        at += following


def _read(block: bytes, begin: int, end: int, wall_ns: int, port: int) -> Segment | None:
    if block[begin] >> 4 == 4:
        head = begin + (block[begin] & 15) * 4
        size = int.from_bytes(block[begin + 2 : begin + 4], "big") or end - begin  # 0: larger than 64 KiB
        origin, destination = block[begin + 12 : begin + 16], block[begin + 16 : begin + 20]
    else:
        head = begin + _V6_BYTES
        length = int.from_bytes(block[begin + 4 : begin + 6], "big")
        size = length + _V6_BYTES if length else end - begin
        origin, destination = block[begin + 8 : begin + 24], block[begin + 24 : begin + 40]
    source, target, sequence, acknowledged, words, flags = _TCP.unpack_from(block, head)
    data_at = head + (words >> 4) * 4
    whole = begin + size
    if data_at > whole or data_at < head + _TCP_LEAST or port not in (target, source):
        return None
    from_client = target == port
    ends = Ends(origin, source, destination) if from_client else Ends(destination, target, origin)
    data = block[data_at : min(whole, end)]
    return Segment(
        wall_ns, ends, from_client, sequence, acknowledged, flags, data, max(0, whole - max(end, data_at))
    )

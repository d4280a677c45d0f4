"""Packets, as the kernel lays them into a block (packet(7), TPACKET_V3)."""

from __future__ import annotations

import socket
import struct

__all__ = ["ETHERNET", "HOST", "LOOPBACK", "OUTGOING", "ip4", "ip6", "packet", "tcp"]

LOOPBACK, ETHERNET, HOST, OUTGOING = 772, 1, 0, 4


def tcp(source: int, target: int, sequence: int, acknowledged: int, flags: int, data: bytes) -> bytes:
    """With twelve bytes of options, as timestamps take."""
    return (
        struct.pack(">HHIIBBHHH", source, target, sequence, acknowledged, 8 << 4, flags, 0, 0, 0)
        + b"\1" * 12
        + data
    )


def ip4(origin: str, goal: str, body: bytes) -> bytes:
    size = 20 + len(body)
    return (
        struct.pack(">BBHHHBBH", 0x45, 0, size if size < 65536 else 0, 0, 0, 64, 6, 0)
        + b"".join(map(socket.inet_aton, (origin, goal)))
        + body
    )


def ip6(origin: str, goal: str, body: bytes) -> bytes:
    ends = b"".join(socket.inet_pton(socket.AF_INET6, one) for one in (origin, goal))
    return struct.pack(">IHBB", 6 << 28, len(body), 6, 64) + ends + body


def packet(
    raw: bytes, *, kind: int = LOOPBACK, way: int = HOST, kept: int | None = None, last: bool = False
) -> bytes:
    """As the kernel lays it into a block."""
    link = struct.pack("=HHiHBB8s", 17, 8, 1, kind, way, 6, b"")
    begin = 48 + len(link)
    taken = raw[: len(raw) if kept is None else kept]
    size = -(-(begin + len(taken)) // 16) * 16
    head = struct.pack("=IIIIIIHH", 0 if last else size, 7, 5, len(taken), len(raw), 1, begin, begin)
    return (head.ljust(48, b"\0") + link + taken).ljust(size, b"\0")

"""Packets as bytes: what one says of its connection, and datagrams and errors made by hand (RFC 791, 8200, 768, 792, 4443)."""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass

__all__ = ["Packet", "datagram", "read_packet", "unreachable_port"]

_V4 = struct.Struct(">BBHHHBBH4s4s")
_V6 = struct.Struct(">IHBB16s16s")
_V4_SIZE, _V6_SIZE, _UDP_SIZE = 20, 40, 8
_V6_EXTENSIONS = frozenset({0, 43, 60})  # hop-by-hop, routing, destination options
_HOPS = 64
_QUOTED_MOST = 1232 - _V6_SIZE - 8  # [bytes] of the packet that an error quotes, within the least MTU of IPv6


@dataclass(frozen=True, slots=True)
class Packet:
    """A TCP segment or a UDP datagram.

    Attributes:
        protocol: IPPROTO_TCP or IPPROTO_UDP.
        origin, destination: (address, port).
        sequence: of a TCP segment; 0 of a datagram.
        data: what a datagram carries; empty for TCP.
    """

    protocol: int
    origin: tuple[str, int]
    destination: tuple[str, int]
    sequence: int
    data: bytes

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET or AF_INET6."""
        return socket.AF_INET6 if ":" in self.destination[0] else socket.AF_INET


def read_packet(raw: bytes) -> Packet | None:
    """Read it from its IP header on; None for what is neither TCP nor UDP, or is cut short."""
    try:
        version = raw[0] >> 4
        if version == 4:
            protocol, start = raw[9], (raw[0] & 15) * 4
            ends = socket.inet_ntoa(raw[12:16]), socket.inet_ntoa(raw[16:20])
        elif version == 6:
            protocol, start = raw[6], _V6_SIZE
            while protocol in _V6_EXTENSIONS:
                protocol, start = raw[start], start + 8 * (raw[start + 1] + 1)
            ends = (
                socket.inet_ntop(socket.AF_INET6, raw[8:24]),
                socket.inet_ntop(socket.AF_INET6, raw[24:40]),
            )
        else:
            return None
        ports = struct.unpack_from(">HH", raw, start)
        origin, destination = (ends[0], ports[0]), (ends[1], ports[1])
        if protocol == socket.IPPROTO_TCP:
            return Packet(protocol, origin, destination, struct.unpack_from(">I", raw, start + 4)[0], b"")
        if protocol == socket.IPPROTO_UDP:
            return Packet(protocol, origin, destination, 0, raw[start + _UDP_SIZE :])
    except (IndexError, struct.error, ValueError, OSError):  # OSError: inet_ntoa of fewer bytes
        pass
    return None


def datagram(origin: tuple[str, int], destination: tuple[str, int], data: bytes) -> bytes:
    """A whole UDP packet, IP header included; both addresses of one family."""
    header = struct.pack(">HHHH", origin[1], destination[1], _UDP_SIZE + len(data), 0)
    body = header + data
    check = _checksum(_pseudo(origin[0], destination[0], socket.IPPROTO_UDP, len(body)) + body) or 0xFFFF
    body = header[:6] + struct.pack(">H", check) + data
    return _ip(origin[0], destination[0], socket.IPPROTO_UDP, body)


def unreachable_port(refused: bytes) -> bytes:
    """The ICMP error that answers a packet to a port where nobody listens; it comes from the packet's destination."""
    if refused[0] >> 4 == 4:
        origin, destination = socket.inet_ntoa(refused[16:20]), socket.inet_ntoa(refused[12:16])
        quoted = refused[: (refused[0] & 15) * 4 + _UDP_SIZE]
        body = struct.pack(">BBHI", 3, 3, 0, 0) + quoted
        body = body[:2] + struct.pack(">H", _checksum(body)) + body[4:]
        return _ip(origin, destination, socket.IPPROTO_ICMP, body)
    origin = socket.inet_ntop(socket.AF_INET6, refused[24:40])
    destination = socket.inet_ntop(socket.AF_INET6, refused[8:24])
    body = struct.pack(">BBHI", 1, 4, 0, 0) + refused[:_QUOTED_MOST]
    check = _checksum(_pseudo(origin, destination, socket.IPPROTO_ICMPV6, len(body)) + body)
    return _ip(origin, destination, socket.IPPROTO_ICMPV6, body[:2] + struct.pack(">H", check) + body[4:])


def _ip(origin: str, destination: str, protocol: int, body: bytes) -> bytes:
    source, target = ipaddress.ip_address(origin).packed, ipaddress.ip_address(destination).packed
    if len(source) == 4:
        header = _V4.pack(0x45, 0, _V4_SIZE + len(body), 0, 0, _HOPS, protocol, 0, source, target)
        return header[:10] + struct.pack(">H", _checksum(header)) + header[12:] + body
    return _V6.pack(6 << 28, len(body), protocol, _HOPS, source, target) + body


def _pseudo(origin: str, destination: str, protocol: int, length: int) -> bytes:
    source, target = ipaddress.ip_address(origin).packed, ipaddress.ip_address(destination).packed
    return source + target + struct.pack(">II", length, protocol)


def _checksum(data: bytes) -> int:
    """RFC 1071. A sum of 16-bit words with the carry added again is what is left modulo 65535."""
    value = int.from_bytes(data + bytes(len(data) % 2), "big")
    rest = value % 0xFFFF
    return 0xFFFF - (rest or (0xFFFF if value else 0))

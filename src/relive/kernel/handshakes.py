"""Seeing who wants to connect in a network namespace, and who is refused: TCP handshakes on loopback (packet(7)).

A connection that is refused is not seen by any other socket. Nor is a datagram (UDP) to a port that nobody has: the kernel says so
to its sender alone (ICMP), on loopback each time.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from dataclasses import dataclass

__all__ = [
    "Handshake",
    "read_handshake",
    "read_lost_datagram",
    "read_refusal",
    "watch_handshakes",
    "watch_lost_datagrams",
    "watch_refusals",
]

_SO_ATTACH_FILTER = 26
# ETH_P_IP, ETH_P_IPV6: what comes in, so that each packet of loopback is seen once.
_PROTOCOLS = (
    0x0800,
    0x86DD,
)
_TCP, _UDP, _ICMP, _ICMP6 = 6, 17, 1, 58
_PORT_UNREACHABLE, _PORT_UNREACHABLE6 = 0x0303, 0x0104  # type and code
_SYN, _SYN_ACK = 0x02, 0x12
_RST_ACK, _SYN_RST_ACK = 0x14, 0x16
_MOST = 128  # [bytes] that are read of a packet

# Classic BPF: struct sock_filter is (u16 code, u8 jump if true, u8 jump if not, u32 value); the packet begins with IP's header.
_LOAD_BYTE, _LOAD_HALF, _LOAD_BYTE_AT_X, _LOAD_HALF_AT_X = 0x30, 0x28, 0x50, 0x48
_LOAD_X_HEADER_LENGTH = 0xB1
_AND, _JUMP_EQUAL, _JUMP_SET, _RETURN = 0x54, 0x15, 0x45, 0x06
_Program = tuple[tuple[int, int, int, int], ...]


def _filters(mask: int, flags: int) -> tuple[_Program, _Program]:
    """For IPv4 and IPv6: TCP segments whose flags, of those in ``mask``, are ``flags``."""
    return (
        (
            (_LOAD_BYTE, 0, 0, 9),
            (_JUMP_EQUAL, 0, 7, _TCP),
            (_LOAD_HALF, 0, 0, 6),
            (_JUMP_SET, 5, 0, 0x1FFF),  # a later fragment
            (_LOAD_X_HEADER_LENGTH, 0, 0, 0),
            (_LOAD_BYTE_AT_X, 0, 0, 13),
            (_AND, 0, 0, mask),
            (_JUMP_EQUAL, 0, 1, flags),
            (_RETURN, 0, 0, _MOST),
            (_RETURN, 0, 0, 0),
        ),
        (
            (_LOAD_BYTE, 0, 0, 6),
            (_JUMP_EQUAL, 0, 4, _TCP),
            (_LOAD_BYTE, 0, 0, 40 + 13),
            (_AND, 0, 0, mask),
            (_JUMP_EQUAL, 0, 1, flags),
            (_RETURN, 0, 0, _MOST),
            (_RETURN, 0, 0, 0),
        ),
    )


# That a port is unreachable, by ICMP and ICMPv6.
_UNREACHABLE: tuple[_Program, _Program] = (
    (
        (_LOAD_BYTE, 0, 0, 9),
        (_JUMP_EQUAL, 0, 4, _ICMP),
        (_LOAD_X_HEADER_LENGTH, 0, 0, 0),
        (_LOAD_HALF_AT_X, 0, 0, 0),
        (_JUMP_EQUAL, 0, 1, _PORT_UNREACHABLE),
        (_RETURN, 0, 0, _MOST),
        (_RETURN, 0, 0, 0),
    ),
    (
        (_LOAD_BYTE, 0, 0, 6),
        (_JUMP_EQUAL, 0, 3, _ICMP6),
        (_LOAD_HALF, 0, 0, 40),
        (_JUMP_EQUAL, 0, 1, _PORT_UNREACHABLE6),
        (_RETURN, 0, 0, _MOST),
        (_RETURN, 0, 0, 0),
    ),
)


@dataclass(frozen=True, slots=True)
class Handshake:
    """The first packet of one, or of a further attempt at the same: then all fields are equal.

    Attributes:
        origin, destination: (address, port); sequence: TCP's.
    """

    origin: tuple[str, int]
    destination: tuple[str, int]
    sequence: int


def watch_handshakes() -> list[socket.socket]:
    """Sockets that see those of the caller's network namespace from now on; each ``recv`` gives what ``read_handshake`` reads.

    Raises:
        OSError: EPERM without CAP_NET_RAW.
    """
    return _watch(_filters(_SYN_ACK, _SYN))


def watch_refusals() -> list[socket.socket]:
    """As ``watch_handshakes``, for resets of connections: ``read_refusal`` tells those that answer a first packet."""
    return _watch(_filters(_SYN_RST_ACK, _RST_ACK))


def watch_lost_datagrams() -> list[socket.socket]:
    """As ``watch_handshakes``, for what the kernel says of packets to ports that nobody has: ``read_lost_datagram`` reads it."""
    return _watch(_UNREACHABLE)


def _watch(programs: tuple[_Program, _Program]) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        for protocol, program in zip(_PROTOCOLS, programs, strict=True):
            # Of no protocol until the filter is there: nothing else can get in before.
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, 0)
            opened.append(sock)
            sock.setblocking(False)
            code = b"".join(struct.pack("HBBI", *step) for step in program)
            buffer = ctypes.create_string_buffer(code)
            sock.setsockopt(
                socket.SOL_SOCKET,
                _SO_ATTACH_FILTER,
                struct.pack("HL", len(program), ctypes.addressof(buffer)),
            )
            sock.bind(("lo", protocol))
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    return opened


def read_refusal(packet: bytes) -> tuple[str, int] | None:
    """The (address, port) that refused a connection, of a packet from ``watch_refusals``; None: it reset one that stood.

    What answers a first packet at a port where nobody listens has the sequence number 0 (RFC 9293, 3.10.7.1).
    """
    seen = read_handshake(packet)
    return seen.origin if seen is not None and seen.sequence == 0 else None


def read_lost_datagram(packet: bytes) -> tuple[str, int] | None:
    """The (address, port) that a datagram did not reach, of a packet from ``watch_lost_datagrams``; None: it tells of none.

    Behind ICMP's own 8 bytes it begins like the datagram that it answers (RFC 792, RFC 4443).
    """
    try:
        if packet[0] >> 4 == 4:
            original = packet[(packet[0] & 0xF) * 4 + 8 :]
            protocol, destination, begin = original[9], original[16:20], (original[0] & 0xF) * 4
        else:
            original = packet[48:]
            protocol, destination, begin = original[6], original[24:40], 40
        (port,) = struct.unpack_from("!H", original, begin + 2)
        return (str(ipaddress.ip_address(destination)), port) if protocol == _UDP else None
    except (IndexError, struct.error, ValueError):
        return None


def read_handshake(packet: bytes) -> Handshake | None:
    """A packet that such a socket gave; None where it is none (any more)."""
    try:
        if packet[0] >> 4 == 4:
            begin = (packet[0] & 0xF) * 4
            origin, destination = packet[12:16], packet[16:20]
        else:
            begin, origin, destination = 40, packet[8:24], packet[24:40]
        own, other, sequence = struct.unpack_from("!HHI", packet, begin)
        return Handshake(
            (str(ipaddress.ip_address(origin)), own),
            (str(ipaddress.ip_address(destination)), other),
            sequence,
        )
    except (IndexError, struct.error, ValueError):
        return None

"""The program by which the kernel takes the packets of a port for a recorder, and of long answers only the beginning.

It is a socket's filter (BPF_PROG_TYPE_SOCKET_FILTER, ``SO_ATTACH_BPF``) and takes what that of ``native/capture.c`` takes: TCP of
the port that carries data, SYN, FIN or RST; on loopback as it comes in, elsewhere what this host sends or gets. But of an answer of
HTTP/1 whose status is 2xx and whose head says a length of more than ``limit``, only the first ``BEGINNING`` bytes of the body are
taken: of a segment that goes beyond them, and not beyond that length, the data up to there, and of those that follow none.

An answer's head is what the service says first after the client has said something; such bytes anywhere else are none. A head has
to come in one segment, in its first ``_HEAD_MOST`` bytes, with one ``Content-Length`` and no ``Transfer-Encoding``. Whatever else
comes is taken as a whole: so is the rest of an answer after something that the client says meanwhile.

Each step is written as the kernel wants it (``bpf.Step``). Registers: 6 the packet, 7 what is known of its connection, 8 where the
segment's data begin, 9 how many they are.
"""

from __future__ import annotations

import os
import struct

from relive.kernel.bpf import Step, assemble, copied_bytes, load, make_map

__all__ = ["BEGINNING", "load_port_program"]

BEGINNING = 16 << 10
"""Bytes that are taken of a long body."""

_SOCKET_FILTER, _ARRAY, _LRU_HASH = 1, 2, 9  # BPF_PROG_TYPE_*, BPF_MAP_TYPE_*
_NAME = b"relive_port"
_CONNECTIONS = 2048  # of which something is known; those of which nothing came for longest are forgotten
# BPF_FUNC_*
_LOOK_UP, _UPDATE, _COPY = 1, 2, 26
# struct __sk_buff
_LENGTH, _PACKET_TYPE, _PROTOCOL, _IFINDEX = 0, 4, 16, 40
_HOST, _OUTGOING, _LOOPBACK = 0, 4, 1
_IPV4, _IPV6, _TCP = 0x0008, 0xDD86, 6  # the first two in network order
_SYN_FIN_RST = 7
# The frame: IP's head, TCP's head, the key of a connection, and what is kept while a head is read
_KEY_BYTES = 40  # addresses of client and service, the client's port
_KEY, _IP, _SEGMENT, _DATA_AT, _DATA_BYTES, _NOW = -40, -80, -104, -112, -120, -128
# What is known of a connection: how many bytes of its answer were before `seq`, and how many it has; flags; its head, and where in
# that its length is written, and where it ends.
_PLACE, _WHOLE, _SEQ, _TURN, _BEGUN, _READ, _HEAD_BYTES, _LENGTH_AT, _END_AT, _HEAD = (
    0,
    8,
    16,
    20,
    24,
    28,
    32,
    36,
    40,
    48,
)
_HEAD_MOST, _DIGITS_MOST, _LENGTH_MOST_AT = 1024, 13, 1000
_KNOWN_BYTES = _HEAD + _HEAD_MOST + 16
_ALL = 0x40000  # more than any packet has
_FOLDED = 0x2020202020202020


def load_port_program(port: int, limit: int) -> int:
    """Descriptor of the program for a port; ``limit``: bytes of a body that is not long (>= ``BEGINNING``).

    Raises:
        OSError: as ``bpf.load``.
    """
    made: list[int] = []
    try:
        made.append(make_map(_NAME, _LRU_HASH, _KEY_BYTES, _KNOWN_BYTES, _CONNECTIONS))
        made.append(make_map(_NAME, _ARRAY, 4, _KNOWN_BYTES, 1))
        return load(assemble(_program(port, limit, *made)), _SOCKET_FILTER, 0)
    finally:
        for one in made:  # the program has them
            os.close(one)


def _program(port: int, limit: int, known: int, blank: int) -> list[Step | str]:
    return [
        (0xBF, 6, 1, 0, 0),
        *((0x7A, 10, 0, _KEY + at, 0) for at in range(0, _KEY_BYTES, 8)),
        *_is_once(),
        *_read_heads(),
        *_tell_sides(port),
        "from client",
        (0xD5, 9, 0, "edge", 0),
        *_look_up(known),
        (0x55, 0, 0, "asks", 0),
        *_make_known(known, blank),
        *_look_up(known),
        (0x15, 0, 0, "take", 0),
        "asks",
        (0x62, 0, 0, _TURN, 1),
        (0x05, 0, 0, "take", 0),
        "from service",
        (0xD5, 9, 0, "edge", 0),
        *_look_up(known),
        (0x15, 0, 0, "take", 0),
        (0xBF, 7, 0, 0, 0),
        (0x61, 1, 7, _TURN, 0),
        (0x15, 1, 0, "goes on", 0),
        *_begin_answer(),
        "goes on",
        *_find_place(),
        *_read_length(limit),
        "is read",
        *_take_beginning(),
        "edge",
        (0x71, 1, 10, _SEGMENT + 13, 0),
        (0x45, 1, 0, "begins or ends", _SYN_FIN_RST),
        "drop",
        (0xB7, 0, 0, 0, 0),
        (0x95, 0, 0, 0, 0),
        "begins or ends",  # what comes next may be of another connection of the same ends
        *_look_up(known),
        (0x15, 0, 0, "take", 0),
        (0x62, 0, 0, _BEGUN, 0),
        "take",
        (0xB7, 0, 0, 0, _ALL),
        (0x95, 0, 0, 0, 0),
    ]


def _is_once() -> list[Step | str]:
    """On loopback each packet goes out and comes in."""
    return [
        (0x61, 1, 6, _PACKET_TYPE, 0),
        (0x15, 1, 0, "comes", _HOST),
        (0x55, 1, 0, "drop", _OUTGOING),
        (0x61, 1, 6, _IFINDEX, 0),
        (0x15, 1, 0, "drop", _LOOPBACK),
        "comes",
    ]


def _number(to: int, at: int, bits: int) -> list[Step | str]:
    """A number in network order out of the frame."""
    return [(0x69 if bits == 16 else 0x61, to, 10, at, 0), (0xDC, to, 0, 0, bits)]


def _read_heads() -> list[Step | str]:
    """IP's and TCP's; not behind extension headers of IPv6, and not of fragments after the first."""
    return [
        (0x61, 1, 6, _PROTOCOL, 0),
        (0x15, 1, 0, "four", _IPV4),
        (0x55, 1, 0, "drop", _IPV6),
        *copied_bytes((0xB7, 2, 0, 0, 0), 40, _IP, "drop"),
        (0x71, 1, 10, _IP + 6, 0),
        (0x55, 1, 0, "drop", _TCP),
        *_number(9, _IP + 4, 16),
        (0xB7, 8, 0, 0, 40),
        (0x15, 9, 0, "large", 0),
        (0x07, 9, 0, 0, 40),
        (0x05, 0, 0, "segment", 0),
        "four",
        *copied_bytes((0xB7, 2, 0, 0, 0), 20, _IP, "drop"),
        (0x71, 1, 10, _IP + 9, 0),
        (0x55, 1, 0, "drop", _TCP),
        *_number(1, _IP + 6, 16),
        (0x45, 1, 0, "drop", 0x1FFF),
        (0x71, 8, 10, _IP, 0),
        (0x57, 8, 0, 0, 15),
        (0x67, 8, 0, 0, 2),
        *_number(9, _IP + 2, 16),
        (0x55, 9, 0, "segment", 0),
        "large",  # than IP's head can say
        (0x61, 9, 6, _LENGTH, 0),
        "segment",
        *copied_bytes((0xBF, 2, 8, 0, 0), 20, _SEGMENT, "drop"),
        (0x71, 1, 10, _SEGMENT + 12, 0),
        (0x77, 1, 0, 0, 4),
        (0x67, 1, 0, 0, 2),
        (0x0F, 8, 1, 0, 0),
        (0x1F, 9, 8, 0, 0),
    ]


def _tell_sides(port: int) -> list[Step | str]:
    """The key of the connection."""
    return [
        *_number(1, _SEGMENT + 2, 16),
        (0x15, 1, 0, "to service", port),
        *_number(1, _SEGMENT, 16),
        (0x55, 1, 0, "drop", port),
        *_put_key("service", client=16, service=0, client_port=2),
        (0x05, 0, 0, "from service", 0),
        "to service",
        *_put_key("client", client=0, service=16, client_port=0),
    ]


def _put_key(side: str, *, client: int, service: int, client_port: int) -> list[Step | str]:
    """``client``, ``service``: where the address is among the two of IPv6; of IPv4 they have a quarter of the size."""
    four, done = f"{side} has four", f"{side} has a key"
    steps: list[Step | str] = [
        (0x69, 1, 10, _SEGMENT + client_port, 0),
        (0x6B, 10, 1, _KEY + 32, 0),
        (0x61, 1, 6, _PROTOCOL, 0),
        (0x15, 1, 0, four, _IPV4),
    ]
    for at in range(0, 16, 8):
        for source, to in ((client, 0), (service, 16)):
            steps += [(0x79, 1, 10, _IP + 8 + source + at, 0), (0x7B, 10, 1, _KEY + to + at, 0)]
    steps += [(0x05, 0, 0, done, 0), four]
    for source, to in ((client, 0), (service, 16)):
        steps += [(0x61, 1, 10, _IP + 12 + source // 4, 0), (0x63, 10, 1, _KEY + to, 0)]
    return [*steps, done]


def _look_up(known: int) -> list[Step | str]:
    """Register 0: what is known of the connection, or 0."""
    return [
        (0x18, 1, 1, 0, known),
        (0, 0, 0, 0, 0),
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, _KEY),
        (0x85, 0, 0, 0, _LOOK_UP),
    ]


def _make_known(known: int, blank: int) -> list[Step | str]:
    return [
        (0x18, 1, 1, 0, known),
        (0, 0, 0, 0, 0),
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, _KEY),
        (0x18, 3, 2, 0, blank),
        (0, 0, 0, 0, 0),
        (0xB7, 4, 0, 0, 0),
        (0x85, 0, 0, 0, _UPDATE),
    ]


def _long(to: int, value: int) -> list[Step | str]:
    low, high = struct.unpack("=ii", struct.pack("=Q", value))
    return [(0x18, to, 0, 0, low), (0, 0, 0, 0, high)]


def _begin_answer() -> list[Step | str]:
    """The first that the service says after the client: keep the head of a 2xx, and take it."""
    return [
        (0x62, 7, 0, _TURN, 0),
        (0x62, 7, 0, _BEGUN, 0),
        (0xC5, 9, 0, "take", 10),
        (0xBF, 4, 9, 0, 0),
        (0xB5, 4, 0, "fits", _HEAD_MOST),
        (0xB7, 4, 0, 0, _HEAD_MOST),
        "fits",
        (0x63, 7, 4, _HEAD_BYTES, 0),
        (0xBF, 1, 6, 0, 0),
        (0xBF, 2, 8, 0, 0),
        (0xBF, 3, 7, 0, 0),
        (0x07, 3, 0, 0, _HEAD),
        (0x85, 0, 0, 0, _COPY),
        (0x55, 0, 0, "take", 0),
        (0x79, 1, 7, _HEAD, 0),
        *_long(2, int.from_bytes(b"HTTP/1.1", "little")),
        (0x1D, 1, 2, "is HTTP", 0),
        *_long(2, int.from_bytes(b"HTTP/1.0", "little")),
        (0x5D, 1, 2, "take", 0),
        "is HTTP",
        (0x69, 1, 7, _HEAD + 8, 0),
        (0x55, 1, 0, "take", int.from_bytes(b" 2", "little")),
        *_number(1, _SEGMENT + 4, 32),
        (0x63, 7, 1, _SEQ, 0),
        (0x7A, 7, 0, _PLACE, 0),
        (0x7A, 7, 0, _WHOLE, 0),  # before any other processor takes it for that of this answer
        (0x62, 7, 0, _LENGTH_AT, 0),
        (0x62, 7, 0, _END_AT, 0),
        (0x62, 7, 0, _READ, 0),
        (0x62, 7, 0, _BEGUN, 1),
    ]


def _find_place() -> list[Step | str]:
    """Go on with data that may end behind the beginning of a body; ``_NOW``: how many bytes of the answer were before them."""
    return [
        (0x61, 1, 7, _BEGUN, 0),
        (0x15, 1, 0, "take", 0),
        *_number(1, _SEGMENT + 4, 32),
        (0xBF, 4, 1, 0, 0),
        (0x61, 2, 7, _SEQ, 0),
        (0x1F, 1, 2, 0, 0),
        (0x67, 1, 0, 0, 32),  # numbers come round
        (0xC7, 1, 0, 0, 32),
        (0x79, 3, 7, _PLACE, 0),
        (0x0F, 3, 1, 0, 0),
        (0xC5, 3, 0, "take", 0),
        (0x7B, 10, 3, _NOW, 0),
        (0xBF, 2, 3, 0, 0),
        (0x0F, 2, 9, 0, 0),
        (0xB5, 2, 0, "take", BEGINNING),
        (0xD5, 1, 0, "has place", 0),
        (0x63, 7, 4, _SEQ, 0),
        (0x7B, 7, 3, _PLACE, 0),
        "has place",
    ]


def _take_beginning() -> list[Step | str]:
    """The heads, and the data that are of the head and the beginning of the body."""
    return [
        (0x79, 3, 10, _NOW, 0),
        (0x79, 1, 7, _WHOLE, 0),
        (0xBF, 2, 3, 0, 0),
        (0x0F, 2, 9, 0, 0),
        (0x2D, 2, 1, "take", 0),
        (0x61, 4, 7, _END_AT, 0),
        (0x07, 4, 0, 0, BEGINNING),
        (0xBD, 2, 4, "take", 0),
        (0xBF, 0, 8, 0, 0),
        (0x3D, 3, 4, "is behind", 0),
        (0x0F, 0, 4, 0, 0),
        (0x1F, 0, 3, 0, 0),
        "is behind",
        (0x95, 0, 0, 0, 0),
    ]


def _read_length(limit: int) -> list[Step | str]:
    """Once an answer: ``_WHOLE``, 0 where it is not long, or the head does not say it in the one way that is read here.

    Two processors may be here at once: whichever meets what the other has found so far leaves ``_WHOLE`` as it is, or puts the
    same there. Until it is there, what comes is taken as a whole.
    """
    return [
        (0x61, 1, 7, _READ, 0),
        (0x55, 1, 0, "is read", 0),
        (0x7B, 10, 8, _DATA_AT, 0),
        (0x7B, 10, 9, _DATA_BYTES, 0),
        *_look_through_head(),
        "looked through",
        (0x61, 4, 7, _END_AT, 0),
        (0x15, 4, 0, "has length", 0),
        (0x61, 1, 7, _LENGTH_AT, 0),
        (0x15, 1, 0, "has length", 0),
        (0x25, 1, 0, "has length", _LENGTH_MOST_AT),
        *_read_digits(limit),
        "has length",
        (0x62, 7, 0, _READ, 1),
        (0x79, 8, 10, _DATA_AT, 0),
        (0x79, 9, 10, _DATA_BYTES, 0),
    ]


def _look_through_head() -> list[Step | str]:
    """Registers: 1 the next byte, 2 its place, 3 and 4 the sixteen before it, 5 how many there are, 8 what makes letters small."""

    def last(text: bytes) -> list[Step | str]:
        return _long(9, int.from_bytes(text, "big") | _FOLDED)

    return [
        (0xBF, 1, 7, 0, 0),
        (0x07, 1, 0, 0, _HEAD),
        *((0xB7, register, 0, 0, 0) for register in (2, 3, 4)),
        (0x61, 5, 7, _HEAD_BYTES, 0),
        *_long(8, _FOLDED),
        "next byte",
        (0x35, 2, 0, "looked through", _HEAD_MOST),
        (0x3D, 2, 5, "looked through", 0),
        (0x71, 0, 1, 0, 0),
        (0x07, 1, 0, 0, 1),
        (0x07, 2, 0, 0, 1),
        (0xBF, 9, 3, 0, 0),
        (0x77, 9, 0, 0, 56),
        (0x67, 4, 0, 0, 8),
        (0x4F, 4, 9, 0, 0),
        (0x67, 3, 0, 0, 8),
        (0x4F, 3, 0, 0, 0),
        (0xBF, 0, 3, 0, 0),
        (0x4F, 0, 8, 0, 0),
        *last(b"-length:"),
        (0x1D, 0, 9, "of a length", 0),
        *last(b"ncoding:"),
        (0x1D, 0, 9, "of a coding", 0),
        (0xBC, 0, 3, 0, 0),
        (0x55, 0, 0, "next byte", 0x0D0A0D0A),
        (0x63, 7, 2, _END_AT, 0),
        (0x05, 0, 0, "looked through", 0),
        "of a length",
        (0xBF, 0, 4, 0, 0),
        (0x4F, 0, 8, 0, 0),
        *last(b"\ncontent"),
        (0x5D, 0, 9, "next byte", 0),
        (0x61, 0, 7, _LENGTH_AT, 0),
        (0x55, 0, 0, "looked through", 0),  # two of them; the end was not seen
        (0x63, 7, 2, _LENGTH_AT, 0),
        (0x05, 0, 0, "next byte", 0),
        "of a coding",
        (0xBF, 0, 4, 0, 0),
        (0x4F, 0, 8, 0, 0),
        *last(b"ansfer-e"),
        (0x5D, 0, 9, "next byte", 0),
        (0x05, 0, 0, "looked through", 0),
    ]


def _read_digits(limit: int) -> list[Step | str]:
    """Registers: 1 where they begin, 2 the number, 4 where the head ends."""
    steps: list[Step | str] = [
        (0xBF, 3, 7, 0, 0),
        (0x0F, 3, 1, 0, 0),
        (0x07, 3, 0, 0, _HEAD),
        (0x71, 0, 3, 0, 0),
        (0x55, 0, 0, "first digit", ord(" ")),
        (0x07, 3, 0, 0, 1),
        "first digit",
        (0xB7, 2, 0, 0, 0),
    ]
    for digit in range(_DIGITS_MOST):
        steps += [
            (0x71, 0, 3, digit, 0),
            (0x15, 0, 0, "number", ord("\r")),
            (0x17, 0, 0, 0, ord("0")),
            (0x25, 0, 0, "has length", 9),
            (0x27, 2, 0, 0, 10),
            (0x0F, 2, 0, 0, 0),
        ]
    return [
        *steps,
        (0x05, 0, 0, "has length", 0),
        "number",
        (0xB5, 2, 0, "has length", limit),
        (0x0F, 2, 4, 0, 0),
        (0x7B, 7, 2, _WHOLE, 0),
    ]

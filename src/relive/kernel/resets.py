"""Dropping TCP resets of certain connections on loopback (BPF_PROG_TYPE_XDP, Linux 5.9)."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable

from relive.kernel.bpf import Step, assemble, attach, load

__all__ = ["MOST_PAIRS", "ResetsDropped"]

MOST_PAIRS = 1000
_XDP, _ATTACH, _GENERIC = 6, 37, 2  # the last: XDP_FLAGS_SKB_MODE, since loopback has no driver that knows it
_LOOPBACK_INDEX = 1
_ETHERNET, _IPV4, _IPV6, _TCP_HEADER = 14, 20, 40, 20  # [bytes] of headers
_TYPE_AT = 12
_RST = 4
_DROP, _PASS = "drop", "pass"


class ResetsDropped:
    """From its making until ``close``, or the end of the process, in the caller's network namespace.

    Args:
        pairs: ports of both ends, at most ``MOST_PAIRS``. Addresses are not looked at.

    Raises:
        OSError: as ``bpf.load`` and ``bpf.attach``.
    """

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        program = load(assemble(_program(set(pairs))), _XDP, _ATTACH)
        try:
            self._attachment = attach(program, _LOOPBACK_INDEX, _ATTACH, _GENERIC)
        finally:
            os.close(program)

    def close(self) -> None:
        """Drop no more. May be called multiple times."""
        if self._attachment >= 0:
            os.close(self._attachment)
            self._attachment = -1


def _program(pairs: set[tuple[int, int]]) -> list[Step | str]:
    """The kernel's resets have headers without options, which makes their places known."""
    both_ways = sorted(pairs | {(to, source) for source, to in pairs})
    return [
        (0x61, 2, 1, 0, 0),  # r2 = where the packet begins
        (0x61, 3, 1, 4, 0),  # r3 = where it ends
        *_reaches(_ETHERNET + _IPV4 + _TCP_HEADER),
        (0x69, 5, 2, _TYPE_AT, 0),
        (0x15, 5, 0, "four", socket.htons(0x0800)),
        (0x55, 5, 0, _PASS, socket.htons(0x86DD)),
        *_reaches(_ETHERNET + _IPV6 + _TCP_HEADER),
        (0x71, 5, 2, _ETHERNET + 6, 0),
        (0x55, 5, 0, _PASS, socket.IPPROTO_TCP),
        (0x07, 2, 0, 0, _ETHERNET + _IPV6),  # r2 = where TCP's header begins
        (0x05, 0, 0, "tcp", 0),
        "four",
        (0x71, 5, 2, _ETHERNET, 0),
        (0x55, 5, 0, _PASS, 0x45),
        (0x71, 5, 2, _ETHERNET + 9, 0),
        (0x55, 5, 0, _PASS, socket.IPPROTO_TCP),
        (0x07, 2, 0, 0, _ETHERNET + _IPV4),
        "tcp",
        (0x71, 5, 2, 13, 0),
        (0x57, 5, 0, 0, _RST),
        (0x15, 5, 0, _PASS, 0),
        (0x61, 5, 2, 0, 0),  # both ports
        *((0x16, 5, 0, _DROP, _ports(*pair)) for pair in both_ways),
        _PASS,
        (0xB7, 0, 0, 0, 2),  # XDP_PASS
        (0x95, 0, 0, 0, 0),
        _DROP,
        (0xB7, 0, 0, 0, 1),  # XDP_DROP
        (0x95, 0, 0, 0, 0),
    ]


def _reaches(length: int) -> list[Step | str]:
    """Leave what is shorter alone; the kernel does not take a program that could read behind the end."""
    return [(0xBF, 4, 2, 0, 0), (0x07, 4, 0, 0, length), (0x2D, 4, 3, _PASS, 0)]


def _ports(source: int, to: int) -> int:
    return int(struct.unpack("=i", struct.pack("!HH", source, to))[0])

"""Marks on the sockets by which the processes of a control group ask others (BPF_CGROUP_*, Linux 5.8).

A TCP socket that listens, and whatever comes in to it, has none: so rules for packets (``-m mark``) tell what a service asks of
others from what it answers, and what it answers goes its own way.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from relive.kernel.bpf import Step, assemble, bpf, load

__all__ = ["mark_connections"]

_PROG_ATTACH, _ALLOW_MULTI = 8, 2
_SOCK, _SOCK_CREATE = 9, 2  # BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE
# BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT and BPF_CGROUP_INET6_CONNECT
_SOCK_ADDR, _CONNECTS = 18, (10, 11)
_SOL_SOCKET, _SO_MARK = 1, 36
# BPF_FUNC_setsockopt, BPF_FUNC_sk_lookup_tcp, BPF_FUNC_sk_release
_SETSOCKOPT, _LOOKUP_TCP, _RELEASE = 49, 84, 86
_GO_ON = "go on"
_END: list[Step | str] = [_GO_ON, (0xB7, 0, 0, 0, 1), (0x95, 0, 0, 0, 0)]


def mark_connections(group: Path, mark: int, entrance: tuple[str, int]) -> None:
    """Mark each TCP socket (SO_MARK) before it connects, if somebody listens at the entrance, and each UDP socket when it is made.

    A connection that begins while nobody listens at the entrance (an IPv4 address of the host's own) has no mark.

    It lasts as long as the group (of version 2), and concerns the sockets that its processes make from now on.

    Raises:
        OSError: as ``bpf.load``, or EINVAL where the kernel has no such programs (CONFIG_CGROUP_BPF), or the group is of version 1.
    """
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _attach(directory, _SOCK, _SOCK_CREATE, _on_making(mark))
        for place in _CONNECTS:
            _attach(directory, _SOCK_ADDR, place, _on_connecting(mark, entrance))
    finally:
        os.close(directory)


def _attach(directory: int, kind: int, place: int, steps: list[Step | str]) -> None:
    program = load(assemble(steps), kind, place)
    try:
        bpf(_PROG_ATTACH, struct.pack("=4I", directory, program, place, _ALLOW_MULTI))
    finally:
        os.close(program)


def _on_making(mark: int) -> list[Step | str]:
    """Not when it sends: the kernel has looked at the mark of the first datagram by then."""
    type_at, mark_at = 8, 16  # in struct bpf_sock
    return [
        (0x61, 2, 1, type_at, 0),
        (0x55, 2, 0, _GO_ON, int(socket.SOCK_DGRAM)),
        (0xB7, 3, 0, 0, mark),
        (0x63, 1, 3, mark_at, 0),
        *_END,
    ]


def _on_connecting(mark: int, entrance: tuple[str, int]) -> list[Step | str]:
    """Registers: 6 the context, 7 the mark that the socket is to have."""
    type_at, socket_at, mark_at = 32, 64, 16  # in struct bpf_sock_addr, and in struct bpf_sock
    nobody, set_it = "nobody listens", "set it"
    return [
        (0x61, 2, 1, type_at, 0),
        (0x55, 2, 0, _GO_ON, int(socket.SOCK_STREAM)),
        (0xBF, 6, 1, 0, 0),
        *_look_for_listener(entrance),
        (0x15, 0, 0, nobody, 0),
        (0xBF, 1, 0, 0, 0),
        (0x85, 0, 0, 0, _RELEASE),
        (0xB7, 7, 0, 0, mark),
        (0x05, 0, 0, set_it, 0),
        nobody,
        (0x79, 2, 6, socket_at, 0),
        (0x15, 2, 0, _GO_ON, 0),
        (0x61, 2, 2, mark_at, 0),
        (0x55, 2, 0, _GO_ON, mark),  # else it connects anew, and had the mark from the first time
        (0xB7, 7, 0, 0, 0),
        set_it,
        (0x63, 10, 7, -4, 0),  # on the stack
        (0xBF, 1, 6, 0, 0),
        (0xB7, 2, 0, 0, _SOL_SOCKET),
        (0xB7, 3, 0, 0, _SO_MARK),
        (0xBF, 4, 10, 0, 0),
        (0x07, 4, 0, 0, -4),
        (0xB7, 5, 0, 0, 4),
        (0x85, 0, 0, 0, _SETSOCKOPT),
        *_END,
    ]


def _look_for_listener(entrance: tuple[str, int]) -> list[Step | str]:
    """Register 0 is then the socket, or 0."""
    address, port = socket.inet_aton(entrance[0]), struct.pack(">H", entrance[1])
    # struct bpf_sock_tuple; who would come from there does not matter
    tuple4 = address + address + port + port
    words = struct.unpack("=3i", tuple4)
    return [
        *((0x62, 10, 0, offset, word) for offset, word in zip((-16, -12, -8), words, strict=True)),
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, -16),
        (0xB7, 3, 0, 0, len(tuple4)),
        (0xB7, 4, 0, 0, -1),  # BPF_F_CURRENT_NETNS
        (0xB7, 5, 0, 0, 0),
        (0x85, 0, 0, 0, _LOOKUP_TCP),
    ]

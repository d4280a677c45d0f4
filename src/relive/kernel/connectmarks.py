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
_SOCK_ADDR, _CONNECTS = (
    18,
    (10, 11),
)  # BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_INET4_CONNECT and its brother of IPv6
_SOL_SOCKET, _SO_MARK = 1, 36
_SETSOCKOPT = 49  # BPF_FUNC_setsockopt
_GO_ON = "go on"
_END: list[Step | str] = [_GO_ON, (0xB7, 0, 0, 0, 1), (0x95, 0, 0, 0, 0)]


def mark_connections(group: Path, mark: int) -> None:
    """Mark each TCP socket (SO_MARK) before it connects, and each UDP socket when it is made.

    It lasts as long as the group (of version 2), and concerns the sockets that its processes make from now on.

    Raises:
        OSError: as ``bpf.load``, or EINVAL where the kernel has no such programs (CONFIG_CGROUP_BPF), or the group is of version 1.
    """
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _attach(directory, _SOCK, _SOCK_CREATE, _on_making(mark))
        for place in _CONNECTS:
            _attach(directory, _SOCK_ADDR, place, _on_connecting(mark))
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


def _on_connecting(mark: int) -> list[Step | str]:
    type_at = 32  # in struct bpf_sock_addr
    return [
        (0x61, 2, 1, type_at, 0),
        (0x55, 2, 0, _GO_ON, int(socket.SOCK_STREAM)),
        (0x62, 10, 0, -4, mark),  # on the stack
        (0xB7, 2, 0, 0, _SOL_SOCKET),
        (0xB7, 3, 0, 0, _SO_MARK),
        (0xBF, 4, 10, 0, 0),
        (0x07, 4, 0, 0, -4),
        (0xB7, 5, 0, 0, 4),
        (0x85, 0, 0, 0, _SETSOCKOPT),
        *_END,
    ]

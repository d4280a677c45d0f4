"""Marks on the sockets that the processes of a control group connect (BPF_PROG_TYPE_CGROUP_SOCK_ADDR, Linux 5.15).

A socket that listens, and whatever comes in to it, has none: so rules for packets (``-m mark``) tell what a service asks of others
from what it answers, and what it answers goes its own way.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from relive.kernel.bpf import Step, assemble, bpf, load

__all__ = ["mark_connections"]

_SOCK_ADDR, _PROG_ATTACH, _ALLOW_MULTI = 18, 8, 2
_CONNECTS = 10, 11  # BPF_CGROUP_INET4_CONNECT, BPF_CGROUP_INET6_CONNECT
_SENDS = 14, 15  # BPF_CGROUP_UDP4_SENDMSG, BPF_CGROUP_UDP6_SENDMSG
_PORT, _TYPE = 24, 32  # places in struct bpf_sock_addr
_SOL_SOCKET, _SO_MARK = 1, 36
_SETSOCKOPT = 49  # BPF_FUNC_setsockopt


def mark_connections(group: Path, mark: int, port: int) -> None:
    """Mark each TCP socket (SO_MARK) before it connects, and each UDP socket that sends to a port.

    It lasts as long as the group (of version 2), which must have been made before its sockets were.

    Raises:
        OSError: as ``bpf.load``, or EINVAL where the kernel has no such programs (CONFIG_CGROUP_BPF), or the group is of version 1.
    """
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for place in (*_CONNECTS, *_SENDS):
            program = load(assemble(_program(mark, port)), _SOCK_ADDR, place)
            try:
                bpf(_PROG_ATTACH, struct.pack("=4I", directory, program, place, _ALLOW_MULTI))
            finally:
                os.close(program)
    finally:
        os.close(directory)


def _program(mark: int, port: int) -> list[Step | str]:
    return [
        (0xBF, 6, 1, 0, 0),  # r6 = the call
        (0x61, 2, 6, _TYPE, 0),
        (0x15, 2, 0, "mark", int(socket.SOCK_STREAM)),
        (0x61, 2, 6, _PORT, 0),
        (0x55, 2, 0, "go on", socket.htons(port)),
        "mark",
        (0x62, 10, 0, -4, mark),
        (0xBF, 1, 6, 0, 0),
        (0xB7, 2, 0, 0, _SOL_SOCKET),
        (0xB7, 3, 0, 0, _SO_MARK),
        (0xBF, 4, 10, 0, 0),
        (0x07, 4, 0, 0, -4),
        (0xB7, 5, 0, 0, 4),
        (0x85, 0, 0, 0, _SETSOCKOPT),
        "go on",
        (0xB7, 0, 0, 0, 1),
        (0x95, 0, 0, 0, 0),
    ]

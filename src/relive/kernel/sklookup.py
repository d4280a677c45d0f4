"""Taking the new connections of a port that somebody else listens at (BPF_PROG_TYPE_SK_LOOKUP, Linux 5.9).

When a SYN comes, the kernel asks a small program which listening socket it is for. Ours names the taker's; if that is gone, the
kernel goes on to the socket it would have found itself. Connections that exist are not looked up, so nothing happens to them. The
attachment lives as long as the descriptor that ``Taking`` holds: whatever becomes of the taker, nothing of it stays.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct

from relive.kernel.bpf import Step, assemble, attach, bpf, load

__all__ = ["PASSED", "Taking"]

PASSED = "127.82.76.86"
"""Who connects from this address is not taken: the taker's own way to the service."""

_MAP_CREATE, _MAP_UPDATE = 0, 2
_SOCKMAP, _SK_LOOKUP, _ATTACH = 15, 30, 36
_TCP = 6
# Offsets in struct bpf_sk_lookup.
_FAMILY, _PROTOCOL, _REMOTE_4, _LOCAL_4, _LOCAL_PORT = 8, 12, 16, 40, 60
_LOOKUP, _ASSIGN, _RELEASE = 1, 124, 86  # helpers
_PASS = "pass"


class Taking:
    """From its making until ``close``, or the end of the process.

    Args:
        address: IPv4 address that the other listens at; "0.0.0.0" for all.
        ours, ours6: listening sockets that are given the connections by IPv4 and IPv6; the second may be None.

    Raises:
        OSError: the kernel does not let us: EPERM without CAP_NET_ADMIN and CAP_BPF or where it is locked down, EINVAL before 5.9,
            ENOSYS without CONFIG_BPF_SYSCALL.
    """

    def __init__(self, address: str, port: int, ours: socket.socket, ours6: socket.socket | None) -> None:
        self._held: list[int] = []
        try:
            sockets = self._hold(bpf(_MAP_CREATE, struct.pack("=5I", _SOCKMAP, 4, 8, 2, 0)))
            for key, one in enumerate((ours, ours6)):
                if one is not None:
                    _put(sockets, key, one.fileno())
            program = self._hold(load(assemble(_program(address, port, sockets)), _SK_LOOKUP, _ATTACH))
            network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                self._hold(attach(program, network, _ATTACH))
            finally:
                os.close(network)
        except BaseException:
            self.close()
            raise

    def _hold(self, descriptor: int) -> int:
        self._held.append(descriptor)
        return descriptor

    def close(self) -> None:
        """Take no more. May be called multiple times."""
        while self._held:
            os.close(self._held.pop())  # the attachment first


def _program(address: str, port: int, sockets: int) -> list[Step | str]:
    """Names the socket of the taker for a connection that it shall have."""
    everywhere = address == "0.0.0.0"
    steps: list[Step | str] = [
        (0xBF, 6, 1, 0, 0),  # r6 = context
        (0x61, 2, 6, _LOCAL_PORT, 0),
        (0x55, 2, 0, _PASS, port),
        (0x61, 2, 6, _PROTOCOL, 0),
        (0x55, 2, 0, _PASS, _TCP),
        (0xB7, 3, 0, 0, 1),  # r3 = which socket
        (0x61, 2, 6, _FAMILY, 0),
        (0x55, 2, 0, "six", int(socket.AF_INET)),
        (0xB7, 3, 0, 0, 0),
        (0x61, 2, 6, _REMOTE_4, 0),
        (0x15, 2, 0, _PASS, _number(PASSED)),
    ]
    if not everywhere:
        steps += [(0x61, 2, 6, _LOCAL_4, 0), (0x55, 2, 0, _PASS, _number(address))]
    steps += [
        (0x05, 0, 0, "take", 0),
        "six",
        *([] if everywhere else [(0x05, 0, 0, _PASS, 0)]),
        "take",
        (0x63, 10, 3, -4, 0),  # the key, on the stack
        (0xBF, 2, 10, 0, 0),
        (0x07, 2, 0, 0, -4),
        (0x18, 1, 1, 0, sockets),
        (0x00, 0, 0, 0, 0),  # the second half of the address
        (0x85, 0, 0, 0, _LOOKUP),
        (0x15, 0, 0, _PASS, 0),  # the taker's socket is gone
        (0xBF, 7, 0, 0, 0),
        (0xBF, 1, 6, 0, 0),
        (0xBF, 2, 7, 0, 0),
        (0xB7, 3, 0, 0, 0),
        (0x85, 0, 0, 0, _ASSIGN),
        (0xBF, 1, 7, 0, 0),
        (0x85, 0, 0, 0, _RELEASE),
        _PASS,
        (0xB7, 0, 0, 0, 1),  # SK_PASS
        (0x95, 0, 0, 0, 0),
    ]
    return steps


def _number(address: str) -> int:
    return int(struct.unpack("=i", socket.inet_aton(address))[0])


def _put(sockets: int, key: int, descriptor: int) -> None:
    name, value = (
        ctypes.create_string_buffer(struct.pack("=I", key)),
        ctypes.create_string_buffer(struct.pack("=Q", descriptor)),
    )
    bpf(_MAP_UPDATE, struct.pack("=IIQQQ", sockets, 0, ctypes.addressof(name), ctypes.addressof(value), 0))

"""Packets that wait for a word: one netfilter queue of the caller's network namespace (nfnetlink_queue, no library needed).

A rule such as ``iptables -t raw -A OUTPUT -p tcp --syn -j NFQUEUE --queue-num 0`` makes packets wait. While nobody has the queue
open they are dropped, so that a TCP handshake is tried again a second later.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

__all__ = ["NetfilterQueue", "WaitingPacket"]

_NETLINK_NETFILTER = 12
_SUBSYSTEM = 3 << 8  # NFNL_SUBSYS_QUEUE
_PACKET, _VERDICT, _CONFIG = _SUBSYSTEM | 0, _SUBSYSTEM | 1, _SUBSYSTEM | 2
_REQUEST, _REQUEST_ACK = 0x1, 0x1 | 0x4
_NLMSG_ERROR = 2
_CFG_COMMAND, _CFG_PARAMETERS, _CFG_MOST = 1, 2, 3
_BIND, _COPY_PACKET, _WHOLE = 1, 2, 0xFFFF
_ATTRIBUTE_HEADER, _ATTRIBUTE_VERDICT, _ATTRIBUTE_MARK, _ATTRIBUTE_PAYLOAD = 1, 2, 3, 10
_DROP, _ACCEPT = 0, 1
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # nlattr: length, type
_TYPE_BITS = 0x3FFF
_SOL_NETLINK, _NO_ENOBUFS, _SO_RCVBUFFORCE = 270, 5, 33
_BUFFER = 8 << 20  # [bytes]
_READ = 1 << 18  # [bytes]
_WAITING_MOST = 16384  # packets; what comes on top is dropped


@dataclass(frozen=True, slots=True)
class WaitingPacket:
    """A packet from its IP header on, and the number by which its verdict is given."""

    number: int
    data: bytes


class NetfilterQueue:
    """One queue, opened. The socket stays in the namespace in which it was made; use it from one thread.

    Raises:
        OSError: EPERM without CAP_NET_ADMIN, EBUSY when somebody else has it open, EPROTONOSUPPORT or ENOENT without the
            kernel's nfnetlink_queue.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._buffer = bytearray(_READ)  # a new one for each read would be mapped and unmapped
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER
        )
        try:
            self._socket.bind((0, 0))
            self._configure(_CFG_COMMAND, struct.pack(">BBH", _BIND, 0, 0))
            self._configure(_CFG_PARAMETERS, struct.pack(">IB", _WHOLE, _COPY_PACKET))
            self._configure(_CFG_MOST, struct.pack(">I", _WAITING_MOST))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
            # A full buffer drops packets, as a full line does; an error for each of them would help nobody.
            self._socket.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Readable when packets wait."""
        return self._socket.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; packets that wait are dropped."""
        self._socket.close()

    def waiting(self) -> list[WaitingPacket]:
        """What has come, in order; empty when nothing has."""
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return []
        data = bytes(memoryview(self._buffer)[:size])
        return [packet for kind, body in _messages(data) if kind == _PACKET for packet in _packets(body)]

    def let_pass(self, number: int, mark: int | None = None) -> None:
        """The packet goes on, with a mark for the tables that it still has to pass."""
        extra = b"" if mark is None else _attribute(_ATTRIBUTE_MARK, struct.pack(">I", mark))
        self._give(number, _ACCEPT, extra)

    def drop(self, number: int) -> None:
        """The packet never was."""
        self._give(number, _DROP, b"")

    def _give(self, number: int, verdict: int, extra: bytes) -> None:
        body = _attribute(_ATTRIBUTE_VERDICT, struct.pack(">II", verdict, number)) + extra
        # ENOENT: the packet is gone already, with its socket perhaps. It is not asked for: no acknowledgement.
        with contextlib.suppress(BlockingIOError):
            self._socket.send(self._message(_VERDICT, _REQUEST, body))

    def _configure(self, attribute: int, value: bytes) -> None:
        self._socket.send(self._message(_CONFIG, _REQUEST_ACK, _attribute(attribute, value)))
        for kind, body in _messages(self._socket.recv(_READ)):
            if kind == _NLMSG_ERROR:
                (error,) = struct.unpack_from("=i", body)
                if error:
                    raise OSError(-error, f"the netfilter queue {self._number} cannot be opened")

    def _message(self, kind: int, flags: int, body: bytes) -> bytes:
        # nfgenmsg: family, version, number of the queue (big-endian)
        whole = struct.pack(">BBH", socket.AF_UNSPEC, 0, self._number) + body
        return _HEADER.pack(_HEADER.size + len(whole), kind, flags, 0, 0) + whole


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size:
            return
        yield kind, data[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _packets(body: bytes) -> Iterator[WaitingPacket]:
    offset, number, payload = 4, None, b""  # behind nfgenmsg
    while offset + _ATTRIBUTE.size <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if length < _ATTRIBUTE.size:
            break
        value = body[offset + _ATTRIBUTE.size : offset + length]
        if kind & _TYPE_BITS == _ATTRIBUTE_HEADER:
            (number,) = struct.unpack_from(">I", value)
        elif kind & _TYPE_BITS == _ATTRIBUTE_PAYLOAD:
            payload = value
        offset += (length + 3) & ~3
    if number is not None:
        yield WaitingPacket(number, payload)

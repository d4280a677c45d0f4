"""Which sockets there are in a network namespace (sock_diag(7)): a few microseconds, however many connections are open."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from relive.kernel.namespaces import Namespace, in_network_of, namespace_id

__all__ = ["BoundAddress", "SocketList", "listening_ports"]

_NETLINK_SOCK_DIAG = 4
_BY_FAMILY, _DESTROY = 20, 21
_REQUEST, _REQUEST_DUMP, _REQUEST_ACKNOWLEDGED = 0x1, 0x1 | 0x300, 0x1 | 0x4
_DONE, _ERROR = 3, 2
_HEADER = struct.Struct("=IHHII")
_ANY_STATE, _SYN_SENT, _CLOSE_WAIT, _LISTEN = 0xFFFFFFFF, 1 << 2, 1 << 8, 1 << 10
# FIN_WAIT1, FIN_WAIT2, TIME_WAIT, LAST_ACK, CLOSING
_CLOSING = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 11
_PROC_LISTEN = "0A"  # in /proc/PID/net/tcp
_V6_ONLY = 11  # INET_DIAG_SKV6ONLY
_GROUP = 21  # INET_DIAG_CGROUP_ID, Linux 5.9
_MESSAGE = 72  # [bytes] struct inet_diag_msg
_READ = 1 << 17  # [bytes]


@dataclass(frozen=True, slots=True)
class BoundAddress:
    """An address that a socket has bound.

    Attributes:
        v6_only: an IPv6 socket that takes no IPv4.
    """

    address: str
    port: int
    v6_only: bool = False

    def takes(self, address: str, port: int) -> bool:
        """What is sent there reaches the socket, if the address is one of the host's own."""
        if port != self.port:
            return False
        if self.address == "0.0.0.0":
            return ":" not in address
        if self.address == "::":
            return ":" in address or not self.v6_only
        return self.address == address


_Described: TypeAlias = tuple[BoundAddress, tuple[str, int], int]  # own end, the other's, control group


class SocketList:
    """Asks the kernel; sees the namespace in which it was made. Use it from one thread."""

    def __init__(self) -> None:
        self._buffer = bytearray(_READ)  # a new one for each read would be mapped and unmapped
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
        )

    def close(self) -> None:
        """Close its line to the kernel."""
        self._socket.close()

    def listening(self) -> set[BoundAddress]:
        """TCP sockets that listen."""
        return {taken for taken, _, _ in self._ask(socket.IPPROTO_TCP, _LISTEN)}

    def inodes_listening(self, port: int) -> set[int]:
        """Inodes of the TCP sockets that listen at a port, as ``/proc/PID/fd`` has them."""
        found = self._messages(socket.IPPROTO_TCP, _LISTEN)
        return {_inode_of(one) for one in found if _ends_of(one)[0][1] == port}

    def is_accepted(self, origin: tuple[str, int], destination: tuple[str, int]) -> bool:
        """A process has taken the connection from there to here (accept(2)), or there is none.

        Raises:
            OSError: the kernel refused the question.
        """
        data = self._find(origin, destination)
        return data is None or 1 << data[1] == _LISTEN or _inode_of(data) != 0

    def listens_at(self, origin: tuple[str, int], destination: tuple[str, int]) -> int | None:
        """Control group (inode of its directory) in which the socket was made that a connection from there to here would come to.

        By the kernel's own look-up, which does not ask whether the address is one of the host's own. None: nobody listens.

        Raises:
            OSError: the kernel refused the question.
        """
        data = self._find(origin, destination)
        if data is None:
            return None
        if 1 << data[1] == _LISTEN:
            return _group_of(data)
        # An earlier connection of the same two ends is still known: look for who listens beside it.
        found = self._ask(socket.IPPROTO_TCP, _LISTEN)
        return next((group for taken, _, group in found if taken.takes(*destination)), None)

    def _find(self, origin: tuple[str, int], destination: tuple[str, int]) -> bytes | None:
        """The inet_diag_msg of the one that a packet from there to here comes to: a connection, or who listens; None: nobody."""
        family = socket.AF_INET6 if ":" in destination[0] else socket.AF_INET
        # inet_diag_sockid: ports, own address, the other's (16 bytes each), interface, cookie (none)
        ends = [socket.inet_pton(family, address).ljust(16, b"\0") for address in (destination[0], origin[0])]
        identity = struct.pack(">HH16s16sI8s", destination[1], origin[1], *ends, 0, b"\xff" * 8)
        body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + identity
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST, 1, 0) + body)
        data = self._receive()
        _, kind, _, _, _ = _HEADER.unpack_from(data)
        if kind == _ERROR:
            (error,) = struct.unpack_from("=i", data, _HEADER.size)
            if -error != errno.ENOENT:
                raise OSError(-error, "the kernel does not say who listens")
            return None
        return data[_HEADER.size :]

    def datagram(self, group: int) -> set[BoundAddress]:
        """UDP sockets that were made in a control group."""
        found = self._ask(socket.IPPROTO_UDP, _ANY_STATE)
        return {taken for taken, _, number in found if number == group}

    def connecting(self) -> set[tuple[tuple[str, int], tuple[str, int]]]:
        """(own end, destination) of TCP sockets whose handshake has not been answered."""
        return {
            ((taken.address, taken.port), destination)
            for taken, destination, _ in self._ask(socket.IPPROTO_TCP, _SYN_SENT)
        }

    def left_by_peers(self) -> set[tuple[tuple[str, int], tuple[str, int]]]:
        """(own end, the other's) of TCP sockets that the other end has closed, and this one not yet."""
        return {
            ((taken.address, taken.port), destination)
            for taken, destination, _ in self._ask(socket.IPPROTO_TCP, _CLOSE_WAIT)
        }

    def forget_ended(self) -> None:
        """Have the kernel forget connections of which nobody has either end any more: they are being closed, or wait (TIME_WAIT).

        Raises:
            OSError: it cannot; an older one has no word for those that wait (EOPNOTSUPP).
        """
        every = self._messages(socket.IPPROTO_TCP, _ANY_STATE)
        held = {_ends_of(one) for one in every if _inode_of(one)}
        for message in every:
            if not _inode_of(message) and 1 << message[1] & _CLOSING and _ends_of(message)[::-1] not in held:
                self._forget(message)

    def _forget(self, message: bytes) -> None:
        # inet_diag_req_v2: family, protocol, extensions, states, and whose (inet_diag_sockid)
        body = struct.pack("=BBBBI", message[0], socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + message[4:52]
        header = _HEADER.pack(_HEADER.size + len(body), _DESTROY, _REQUEST_ACKNOWLEDGED, 1, 0)
        self._socket.send(header + body)
        (error,) = struct.unpack_from("=i", self._receive(), _HEADER.size)
        if error and -error != errno.ENOENT:  # it has ended just now
            raise OSError(-error, "the kernel does not forget an ended connection")

    def _ask(self, protocol: int, states: int) -> list[_Described]:
        return [_described(message) for message in self._messages(protocol, states)]

    def _messages(self, protocol: int, states: int) -> list[bytes]:
        found: list[bytes] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=BBBBI48x", family, protocol, 0, 0, states)
            header = _HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST_DUMP, 1, 0)
            self._socket.send(header + body)
            while self._read(found):
                pass
        return found

    def _receive(self) -> bytes:
        size = self._socket.recv_into(self._buffer)
        return bytes(memoryview(self._buffer)[:size])

    def _read(self, found: list[bytes]) -> bool:
        """Take one packet of the answer; False when it was the last."""
        data = self._receive()
        offset = 0
        while offset + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
            if kind in (_DONE, _ERROR):
                return False
            found.append(data[offset + _HEADER.size : offset + length])
            offset += (length + 3) & ~3
        return True


def listening_ports(pid: int | None = None) -> set[int]:
    """TCP ports on which anything listens, IPv4 and IPv6, in the network namespace of a process, or of this thread.

    Nothing when the process is gone. Whoever waits for a service asks again and again: for /proc/PID/net/tcp the kernel goes
    through the table of all connections of the host, which takes 5 to 25 ms of a processor. So that is read only where this
    process may not enter the namespace, as that of one with more rights.
    """
    try:
        if pid is None or namespace_id(pid, Namespace.NETWORK) == namespace_id(
            "thread-self", Namespace.NETWORK
        ):
            return _listening_here()
        return in_network_of(pid, _listening_here)
    except (FileNotFoundError, ProcessLookupError):
        return set()
    except PermissionError:
        return _listening_as_told(pid)


def _listening_as_told(pid: int | None) -> set[int]:
    ports: set[int] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _PROC_LISTEN:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _listening_here() -> set[int]:
    sockets = SocketList()
    try:
        return {one.port for one in sockets.listening()}
    finally:
        sockets.close()


def _described(message: bytes) -> _Described:
    """inet_diag_msg: family, state, timer, retransmissions; ports; two addresses of 16 bytes; interface, ..."""
    family = message[0]
    own_port, destination_port = struct.unpack_from(">HH", message, 4)
    size = 4 if family == socket.AF_INET else 16
    own = _plain(socket.inet_ntop(family, message[8 : 8 + size]))
    destination = _plain(socket.inet_ntop(family, message[24 : 24 + size]))
    v6_only = _attribute(message, _V6_ONLY)[:1] not in (b"", b"\0")
    return BoundAddress(own, own_port, v6_only), (destination, destination_port), _group_of(message)


def _ends_of(message: bytes) -> tuple[tuple[str, int], tuple[str, int]]:
    taken, destination, _ = _described(message)
    return (taken.address, taken.port), destination


def _plain(address: str) -> str:
    """An IPv4 address that an IPv6 socket uses, as the packets have it."""
    return address.removeprefix("::ffff:") if "." in address else address


def _inode_of(message: bytes) -> int:
    """Of whoever has it open; 0: nobody."""
    return int.from_bytes(message[68:72], sys.byteorder)


def _group_of(message: bytes) -> int:
    return int.from_bytes(_attribute(message, _GROUP), sys.byteorder)


def _attribute(message: bytes, wanted: int) -> bytes:
    offset = _MESSAGE
    while offset + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, offset)
        if length < 4:
            break
        if kind == wanted:
            return message[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return b""

"""The network of the capsule, as the recorder at its border uses it from the host's: sockets that are made there.

A socket stays in the namespace in which it was made. The recorder's one thread goes there for the moment in which it makes one.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator

from relive.kernel import libc, loopback
from relive.kernel.namespaces import Namespace
from relive.kernel.nfqueue import NetfilterQueue
from relive.kernel.sockdiag import SocketList
from relive.proxies.marks import ENTRANCE, QUEUE, Mark

__all__ = ["InnerNetwork"]

_IP_TRANSPARENT, _IPV6_TRANSPARENT = 19, 75
_SO_MARK = 36
_BACKLOG = 4096
_LOST = 70  # exit status


class InnerNetwork:
    """Use it from one thread.

    Attributes:
        queue: where connections that begin, and datagrams, wait.
        entrances: listening sockets, at which connections to any destination come in; their own address is then the destination.
        sockets: which sockets there are.
    """

    def __init__(self, pid: int) -> None:
        """Open the network of a process.

        Raises:
            OSError: the process is gone, or the kernel refuses what is needed.
        """
        flags = os.O_RDONLY | os.O_CLOEXEC
        self._outside = os.open("/proc/thread-self/ns/net", flags)
        self._inside = os.open(f"/proc/{pid}/ns/net", flags)
        with self.entered():
            self._own = loopback.addresses()
            self.sockets = SocketList()
            self.queue = NetfilterQueue(QUEUE)
            self.entrances = [_entrance(socket.AF_INET, "127.0.0.1")]
            if "::1" in self._own:
                self.entrances.append(_entrance(socket.AF_INET6, "::1"))

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Within it, new sockets belong to the capsule."""
        libc.call("setns", self._inside, int(Namespace.NETWORK))
        try:
            yield
        finally:
            try:
                libc.call("setns", self._outside, int(Namespace.NETWORK))
            except OSError as error:
                # Connections to the host's databases would end in the capsule: better none at all.
                sys.stderr.write(f"relive egress: cannot come back from the capsule's network: {error}\n")
                os._exit(_LOST)

    def is_own(self, address: str) -> bool:
        """The capsule's (and so the host's) own address."""
        return address in self._own or ipaddress.ip_address(address).is_loopback

    def is_taken(self, origin: tuple[str, int], destination: tuple[str, int]) -> bool:
        """The service itself listens at the destination."""
        return (
            self.is_own(destination[0])
            and destination[1] != ENTRANCE
            and self.sockets.accepts(origin, destination)
        )

    def takes_datagrams(self, address: str, port: int) -> bool:
        """The service itself has bound a UDP socket there."""
        return self.is_own(address) and any(one.takes(address, port) for one in self.sockets.datagram())

    def stream(self, family: int) -> socket.socket:
        """A TCP socket in there that reaches what the service listens on, and nothing else; non-blocking."""
        with self.entered():
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.SOL_SOCKET, _SO_MARK, Mark.OWN)
        return sock

    def raw(self, family: int) -> socket.socket:
        """A socket that puts whole packets, IP header included, into the capsule's network."""
        with self.entered():
            sock = socket.socket(family, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_RAW)
        sock.setsockopt(socket.SOL_SOCKET, _SO_MARK, Mark.OWN)
        sock.setblocking(False)
        return sock

    def close(self) -> None:
        """Close all of it. What begins afterwards waits for the next recorder."""
        self.queue.close()
        self.sockets.close()
        for entrance in self.entrances:
            entrance.close()
        os.close(self._inside)
        os.close(self._outside)


def _entrance(family: int, address: str) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET:
            sock.setsockopt(socket.IPPROTO_IP, _IP_TRANSPARENT, 1)
        else:
            sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_TRANSPARENT, 1)
        sock.bind((address, ENTRANCE))
        sock.listen(_BACKLOG)
    except BaseException:
        sock.close()
        raise
    return sock

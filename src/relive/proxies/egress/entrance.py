"""The recorder's side of a capsule's border (``relive.sandbox.border``): where what the service asks of others comes to it."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from pathlib import Path

from relive.kernel import loopback
from relive.kernel.nfqueue import NetfilterQueue
from relive.kernel.sockdiag import SocketList
from relive.proxies.marks import ENTRANCE, Mark, entrance4, entrance6, queue_of

__all__ = ["Entrance"]

_IP_TRANSPARENT, _IPV6_TRANSPARENT = 19, 75
_SO_MARK = 36
_BACKLOG = 4096


class Entrance:
    """Use it from one thread.

    Args:
        number: the border's.
        group: directory of the control group of the service's processes.

    Attributes:
        queue: where connections that begin, and questions to name servers, wait.
        listeners: sockets at which connections to any destination come in; their own address is then the destination.
        sockets: which sockets there are.

    Raises:
        OSError: the kernel refuses what is needed; EBUSY where another recorder is at this border.
    """

    def __init__(self, number: int, group: Path) -> None:
        self._number = number
        self._group = group.stat().st_ino
        self.sockets = SocketList()
        self.queue = NetfilterQueue(queue_of(number))
        self.listeners = [self._listener(socket.AF_INET, entrance4(number))]
        if Path("/proc/net/if_inet6").exists():
            with contextlib.suppress(OSError):  # IPv6 is there and switched off
                self.listeners.append(self._listener(socket.AF_INET6, entrance6(number)))

    def is_taken(self, origin: tuple[str, int], destination: tuple[str, int]) -> bool:
        """The service itself listens at the destination."""
        group = self.sockets.listens_at(origin, destination)
        return group == self._group and _is_own(destination[0])

    def takes_datagrams(self, address: str, port: int) -> bool:
        """The service itself has bound a UDP socket there."""
        taken = any(one.takes(address, port) for one in self.sockets.datagram(self._group))
        return taken and _is_own(address)

    def let_pass(self, waiting: int, kind: Mark) -> None:
        """A packet of the queue goes on to where such a mark leads."""
        self.queue.let_pass(waiting, kind.of(self._number))

    def raw(self, family: int) -> socket.socket:
        """A socket that sends whole packets, IP header included, with whatever source address; non-blocking."""
        sock = socket.socket(family, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_RAW)
        sock.setsockopt(socket.SOL_SOCKET, _SO_MARK, Mark.OWN.of(self._number))
        sock.setblocking(False)
        return sock

    def close(self) -> None:
        """Close all of it. What begins afterwards waits for the next recorder."""
        self.queue.close()
        self.sockets.close()
        for listener in self.listeners:
            listener.close()

    def _listener(self, family: int, address: str) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_IP, _IP_TRANSPARENT, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IPV6, _IPV6_TRANSPARENT, 1)
            sock.setsockopt(socket.SOL_SOCKET, _SO_MARK, Mark.OWN.of(self._number))
            sock.bind((address, ENTRANCE))
            sock.listen(_BACKLOG)
        except BaseException:
            sock.close()
            raise
        return sock


def _is_own(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback or address in loopback.addresses()

"""Standing in for a service at its own port: its new connections come to the proxy, those that exist are left alone.

The service's socket goes on listening. It is given connections again at the moment at which the proxy ends, however that comes.
"""

from __future__ import annotations

import contextlib
import errno
import socket

from relive.errors import HostIncapable
from relive.kernel.sklookup import PASSED, Taking

__all__ = ["OWN_ADDRESS", "StandIn"]

OWN_ADDRESS = (PASSED, 0)
"""From where the proxy itself connects to the service, so that this connection is not given to the proxy again."""

_BACKLOG = 4096


class StandIn:
    """From its making until ``give_back``.

    Attributes:
        listeners: sockets to accept from; they stay open after ``give_back``, for what has come before.

    Args:
        place: where the service listens: its IPv4 address and port.
        everywhere: it listens at all addresses.

    Raises:
        HostIncapable: this kernel does not let anybody stand in.
    """

    def __init__(self, place: tuple[str, int], *, everywhere: bool) -> None:
        self.listeners = [_listener(socket.AF_INET, "127.0.0.1")]
        six = None
        if everywhere:
            with contextlib.suppress(OSError):  # a host without IPv6
                six = _listener(socket.AF_INET6, "::1")
                self.listeners.append(six)
        try:
            self._taking = Taking("0.0.0.0" if everywhere else place[0], place[1], self.listeners[0], six)
        except OSError as error:
            for one in self.listeners:
                one.close()
            raise HostIncapable(
                f"the recording proxy cannot stand in for port {place[1]}",
                cause=f"bpf: {error.strerror}"
                + (" (Linux 5.9 is needed)" if error.errno == errno.EINVAL else ""),
                remedy="use --listen ADDR:PORT --upstream ADDR:PORT, and point clients there",
            ) from error

    def give_back(self) -> None:
        """From now on connections come to the service. May be called multiple times."""
        self._taking.close()


def _listener(family: socket.AddressFamily, address: str) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # What is accepted is at the service's own port: without this a service that starts again could not bind to that.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, 0))
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made

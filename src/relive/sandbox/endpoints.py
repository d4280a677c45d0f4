"""What stands for the outside in a branch whose service is to be answered: wanted, and opened in the branch's network.

All of it is there before the processes run, so that nothing they do meets a gap. Who reads and answers is not decided here.

A *destination* is an (address, port) that the service had connected to. Each gets a socket that is bound, listening or not: bound
alone, connections are refused; listening with a queue that is full, they come to no end. Danger: a service may listen at every
address on the port of a destination. CRIU binds with SO_REUSEPORT, and so do we; the kernel prefers the listener of the one
address.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from relive.kernel.handshakes import watch_handshakes

__all__ = ["Address", "Door", "OpenedEndpoints", "Outside", "open_endpoints", "plain_address", "set_door"]

Address = tuple[str, int]
_BACKLOG = 4096


class Door(StrEnum):
    """What becomes of who wants to connect to a destination."""

    OPEN = "open"
    REFUSES = "refuses"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Outside:
    """What is wanted.

    Attributes:
        continued: (own, peer) address of each outward connection that shall go on; all others are closed.
        destinations: how each is at first.
        names: destinations of datagrams to name servers.
    """

    continued: frozenset[tuple[Address, Address]] = frozenset()
    destinations: Mapping[Address, Door] = field(default_factory=dict)
    names: tuple[Address, ...] = ()

    @property
    def addresses(self) -> set[str]:
        """All that have to be local."""
        return {address for address, _ in (*self.destinations, *self.names)}


@dataclass(slots=True)
class OpenedEndpoints:
    """What was opened: descriptors of sockets in the branch's network, which belong to the holder.

    Attributes:
        continued: the other ends of outward connections, by (own, peer) address of the service's.
        destinations, names: bound sockets by destination.
        fillers: of destinations that are silent, what fills their queues; they only have to stay open.
        handshakes: raw sockets that see who wants to connect, see ``kernel.handshakes``.
        untaken: destinations that could not be opened, and why.
    """

    continued: dict[tuple[Address, Address], int] = field(default_factory=dict)
    destinations: dict[Address, int] = field(default_factory=dict)
    names: dict[Address, int] = field(default_factory=dict)
    fillers: list[int] = field(default_factory=list)
    handshakes: list[int] = field(default_factory=list)
    untaken: dict[Address, str] = field(default_factory=dict)

    def close(self) -> None:
        """Close all that the holder has not taken out; doing it twice is no error."""
        named = (self.continued, self.destinations, self.names)
        for descriptor in (
            *(one for held in named for one in held.values()),
            *self.fillers,
            *self.handshakes,
        ):
            os.close(descriptor)
        for held in (*named, self.fillers, self.handshakes):
            held.clear()


def open_endpoints(outside: Outside, own: Iterable[Address], ends: OpenedEndpoints) -> None:
    """Open the destinations in the caller's network namespace, where their addresses are local already, and add them to ``ends``.

    Not before the other ends of connections are forged: the kernel lets a listener join them at an address, but not them
    a listener.

    Args:
        own: where the service itself listens; destinations there are its own affair.
        ends: what sees who wants to connect may be in it already.
    """
    itself = _OwnListeners(own)
    if outside.destinations and not ends.handshakes:
        ends.handshakes += [sock.detach() for sock in watch_handshakes()]
    for destination, door in outside.destinations.items():
        if itself.cover(destination):
            ends.untaken[destination] = "the service listens there itself"
            continue
        with _noting(destination, ends.untaken), _bound(destination, socket.SOCK_STREAM) as sock:
            ends.fillers += [filler.detach() for filler in set_door(sock, door)]
            ends.destinations[destination] = sock.detach()
    for destination in outside.names:
        with _noting(destination, ends.untaken), _bound(destination, socket.SOCK_DGRAM) as sock:
            ends.names[destination] = sock.detach()


def set_door(sock: socket.socket, door: Door) -> list[socket.socket]:
    """Let a destination's socket take connections, refuse them, or be silent; returns what has to be held meanwhile.

    For SILENT, from a thread in the socket's own network. What waits in its queue is lost.
    """
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.shutdown(socket.SHUT_RDWR)  # it stays bound, and can listen again
    if door is Door.OPEN:
        sock.listen(_BACKLOG)
    if door is not Door.SILENT:
        return []
    sock.listen(0)
    filler = socket.socket(sock.family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # One has room where the backlog is 0. The kernel drops whoever comes after it (tcp_conn_request).
        filler.connect(sock.getsockname())
    except BaseException:
        filler.close()
        raise
    return [filler]


class _OwnListeners:
    """Where the service listens itself."""

    def __init__(self, own: Iterable[Address]) -> None:
        self._exact = {(plain_address(address), port) for address, port in own}
        self._anywhere = {port for address, port in self._exact if address in ("0.0.0.0", "::")}

    def cover(self, destination: Address) -> bool:
        """A connection to that destination reaches the service itself."""
        address = plain_address(destination[0])
        is_loopback = ipaddress.ip_address(address).is_loopback
        return (address, destination[1]) in self._exact or (is_loopback and destination[1] in self._anywhere)


def plain_address(address: str) -> str:
    """The address in one way of writing it; an IPv4 address mapped into IPv6 is the IPv4 address."""
    parsed = ipaddress.ip_address(address)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


@contextlib.contextmanager
def _noting(destination: Address, untaken: dict[Address, str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        untaken[destination] = f"{errno.errorcode.get(error.errno or 0, 'error')}: {error.strerror}"


def _bound(destination: Address, kind: socket.SocketKind) -> socket.socket:
    family = socket.AF_INET6 if ":" in destination[0] else socket.AF_INET
    sock = socket.socket(family, kind | socket.SOCK_CLOEXEC)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(destination)
    except BaseException:
        sock.close()
        raise
    return sock

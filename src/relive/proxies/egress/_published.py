"""Keeping a service reachable where it was: what it listens on in its capsule is listened on at the host, too.

Its own network is the capsule's, so a client that connects to the host's port is carried inside. The service sees the client's
true address, since every address is local in there. Nothing of this is recorded: that is the proxy's work.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Callable

from relive.kernel.sockdiag import BoundAddress
from relive.proxies.egress._capsule_network import InnerNetwork
from relive.proxies.egress._pairs import Pairs
from relive.proxies.marks import ENTRANCE
from relive.proxies.service_socket import ServiceSocket

__all__ = ["Reach"]

_LOOK_EVERY = 0.02  # [s]
_PAUSE = 0.1  # [s] until it is tried again to take connections
_HIGH_WATER = 1 << 20  # [bytes]
_BACKLOG = 4096
_IN_PROGRESS = (errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK)


class Reach:
    """Lives in the event loop.

    Args:
        on_trouble: told one sentence when a port cannot be had.
        pairs: who carries the connections; None: this one does, in Python.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inner: InnerNetwork,
        on_trouble: Callable[[str], None],
        pairs: Pairs | None,
    ) -> None:
        self._loop = loop
        self._pairs = pairs
        self._inner = inner
        self._on_trouble = on_trouble
        self._doors: dict[BoundAddress, socket.socket | None] = {}
        self._carried: set[_Carried] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def close(self) -> None:
        """Listen no more, and end what is carried."""
        if self._timer is not None:
            self._timer.cancel()
        for taken in list(self._doors):
            self._shut(taken)
        for carried in list(self._carried):
            carried.close(reset=True)

    @property
    def has_said_all(self) -> bool:
        """All that the service has said has been handed on, and it says no more."""
        return all(carried.has_said_all for carried in self._carried)

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_EVERY, self._look)
        now = {one for one in self._inner.sockets.listening() if one.port != ENTRANCE}
        for taken in self._doors.keys() - now:
            self._shut(taken)
        for taken in now - self._doors.keys():
            self._open(taken)

    def _open(self, taken: BoundAddress) -> None:
        family = socket.AF_INET6 if ":" in taken.address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(taken.v6_only))
            sock.bind((taken.address, taken.port))
            sock.listen(_BACKLOG)
        except OSError as error:
            sock.close()
            self._doors[taken] = None
            self._on_trouble(
                f"the service listens on {taken.address} port {taken.port}, but cannot be reached there from the host: "
                f"{error.strerror}"
            )
            return
        self._doors[taken] = sock
        self._loop.add_reader(sock.fileno(), self._come, sock)

    def _reopen(self, door: socket.socket) -> None:
        if door.fileno() >= 0:
            self._loop.add_reader(door.fileno(), self._come, door)

    def _shut(self, taken: BoundAddress) -> None:
        sock = self._doors.pop(taken)
        if sock is not None:
            self._loop.remove_reader(sock.fileno())
            sock.close()

    def _come(self, door: socket.socket) -> None:
        while True:
            try:
                client, peer = door.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in (errno.ECONNABORTED, errno.EPROTO):
                    continue  # the client took it back
                # No descriptor is left, which would be reported again and again.
                self._loop.remove_reader(door.fileno())
                self._loop.call_later(_PAUSE, self._reopen, door)
                return
            client.setblocking(False)
            destination = client.getsockname()
            family = client.family
            if family == socket.AF_INET6 and destination[0].startswith("::ffff:") and "." in destination[0]:
                family = socket.AF_INET
                destination = (destination[0].removeprefix("::ffff:"), destination[1])
                peer = (peer[0].removeprefix("::ffff:"), peer[1])
            try:
                service = self._dial(family, peer, destination)
            except OSError:
                client.close()
                continue
            if self._pairs is not None:
                self._pairs.reach(service, client)
                continue
            carried = _Carried(self._loop, client, service, self._carried.discard)
            self._carried.add(carried)

    def _dial(self, family: int, peer: tuple[str, int], destination: tuple[str, int]) -> socket.socket:
        """A connection in the capsule; it stands at once, as nothing is between its ends, or is refused."""
        sock = self._inner.stream(family)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(peer[:2])
            except OSError:
                with contextlib.suppress(OSError):
                    sock.bind((peer[0], 0))
            code = sock.connect_ex(destination[:2])
            if code in _IN_PROGRESS:
                code = sock.connect_ex(destination[:2])
            if code not in (0, errno.EISCONN, *_IN_PROGRESS):
                raise OSError(code, os.strerror(code))
        except BaseException:
            sock.close()
            raise
        return sock


class _Carried:
    """One client's connection and the one inside."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client: socket.socket,
        service: socket.socket,
        done: Callable[[_Carried], None],
    ) -> None:
        self._done = done
        self._ended = 0
        self._service_ended = False
        ends = _Half(self), _Half(self)
        self._sockets = ServiceSocket(loop, client, ends[0]), ServiceSocket(loop, service, ends[1])
        self._service = ends[1]
        ends[0].own, ends[0].other = self._sockets
        ends[1].other, ends[1].own = self._sockets

    @property
    def has_said_all(self) -> bool:
        """The service has ended its direction, and the client has all of it."""
        return self._service_ended and not self._sockets[0].backlog

    def half_ended(self, half: _Half) -> None:
        """One direction has ended."""
        self._ended += 1
        self._service_ended = self._service_ended or half is self._service
        self.look()

    def look(self) -> None:
        """Close when all is said."""
        if self._ended == 2 and not any(sock.backlog for sock in self._sockets):
            self.close(reset=False)

    def close(self, *, reset: bool) -> None:
        """End it."""
        for sock in self._sockets:
            sock.close(reset=reset)
        self._done(self)


class _Half:
    """What comes from one end goes to the other."""

    own: ServiceSocket
    other: ServiceSocket

    def __init__(self, carried: _Carried) -> None:
        self._carried = carried

    def service_data(self, data: bytes) -> None:
        self.other.send(data)
        if self.other.backlog > _HIGH_WATER:
            self.own.pause_reading()

    def service_eof(self) -> None:
        self.other.shutdown()
        self._carried.half_ended(self)

    def service_lost(self, _error: OSError, /) -> None:
        self._carried.close(reset=True)

    def service_drained(self) -> None:
        self.other.resume_reading()
        self._carried.look()

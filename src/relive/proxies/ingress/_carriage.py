"""The relay among the proxy's connections: what it posts is acted on, and at the gate it stands for all that it carries."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Sequence

from relive.proxies.ingress._connection import ClientConnection
from relive.proxies.ingress._posts import tell
from relive.proxies.ingress._traffic import Traffic
from relive.proxies.ingress.takeover import OWN_ADDRESS
from relive.proxies.relay import HandedConnection, Post, PostKind, RelayCounts, SocketName
from relive.proxies.relay_writer import RelayWriter

__all__ = ["AT_THE_GATE", "Carriage"]

AT_THE_GATE = 0
"""Its number among the gate's keepers; connections have others."""

_THREADS_MOST = 4


class Carriage:
    """A ``GateKeeper``. Lives in the proxy's event loop."""

    def __init__(self, traffic: Traffic, writer: RelayWriter) -> None:
        self._traffic = traffic
        self._writer = writer
        self._relay = writer.relay
        self._adopting: set[asyncio.Task[None]] = set()

    def start(self, listeners: Sequence[socket.socket]) -> bool:
        """Carry what comes to the listeners from now on. False: this cannot be done here, and nothing was accepted."""
        options = self._traffic.options
        upstream = _socket_name(*self._traffic.addresses[0])
        for listener in listeners:
            listener.setblocking(False)
        begun = upstream is not None and self._relay.start(
            [listener.fileno() for listener in listeners],
            upstream,
            logs=options.logs,
            source=_socket_name(socket.AF_INET, OWN_ADDRESS) if options.stand_in else None,
            body_limit=options.body_limit,
            threads=min(_THREADS_MOST, len(os.sched_getaffinity(0))),
        )
        if begun:
            self._traffic.relay = self._relay
            self._traffic.gate.keepers[AT_THE_GATE] = self
            self._traffic.loop.add_reader(self._relay.posts_fd, self.hear)
        return begun

    def hear(self) -> None:
        """Act on all that the relay has posted by now."""
        for post in self._relay.posts():
            self._act_on(post)

    def counts(self) -> RelayCounts:
        """Of what the relay carries and has seen."""
        return self._relay.counts()

    def reports(self) -> list[dict[str, int | None]]:
        """What the agent is told when the gate closes."""
        return self._relay.reports()

    def look_for_hangs(self, seconds: float) -> None:
        """Have the requests told that have waited for so long."""
        self._relay.look_for_hangs(seconds)

    def stop_accepting(self) -> None:
        """Take no new connections."""
        self._relay.stop_accepting()

    # For the gate

    def freeze(self) -> None:
        """Let nothing out to the service from now on."""
        self._relay.freeze()

    def thaw(self) -> None:
        """Go on."""
        self._relay.thaw()

    def shut(self) -> None:
        """The proxy ends."""
        self._traffic.loop.remove_reader(self._relay.posts_fd)
        self._relay.close()
        self._traffic.gate.keepers.pop(AT_THE_GATE, None)
        self.hear()

    def leave_if_idle(self) -> None:
        """Never asked for: with requests that are held there is no relay."""

    def waits_on_service(self, flight: object) -> bool:  # noqa: ARG002  the relay looks at its own
        """It has no flights of which Python knows."""
        return False

    def release(self, request: int) -> None:
        """It holds none."""

    def _act_on(self, post: Post) -> None:
        traffic = self._traffic
        if post.kind is PostKind.HANDED and post.handed is not None:
            self._adopt(post.handed)
        elif post.kind is PostKind.SPEAKS_HTTP:
            traffic.speaks_http = True
        elif post.kind is PostKind.SERVICE_SEEN:
            traffic.service_seen = True
        else:
            tell(post, traffic, self._writer)

    def _adopt(self, handed: HandedConnection) -> None:
        connection = ClientConnection(self._traffic)
        connection.adopt(handed)  # now: the gate may close before there is a transport
        task = self._traffic.loop.create_task(self._connect(connection, handed.client_fd))
        self._adopting.add(task)
        task.add_done_callback(self._adopting.discard)

    async def _connect(self, connection: ClientConnection, client_fd: int) -> None:
        sock = socket.socket(fileno=client_fd)
        try:
            await self._traffic.loop.connect_accepted_socket(lambda: connection, sock)
        except OSError as error:  # the client is gone already
            with contextlib.suppress(OSError):
                sock.close()
            connection.connection_lost(error)


def _socket_name(family: int, address: tuple[object, ...]) -> SocketName | None:
    """``struct sockaddr_in`` or ``sockaddr_in6``; None for what is neither."""
    if family not in (socket.AF_INET, socket.AF_INET6):
        return None
    host, port = str(address[0]).partition("%")[0], int(str(address[1]))
    raw = struct.pack("=H", family) + struct.pack("!H", port)
    if family == socket.AF_INET:
        return SocketName(raw + socket.inet_aton(host) + bytes(8))
    flow, scope = (int(str(number)) for number in address[2:4])
    return SocketName(
        raw + struct.pack("!I", flow) + socket.inet_pton(family, host) + struct.pack("=I", scope)
    )

"""What all connections of one ingress proxy share: the recording, the gate, and what is known of the service.

Connections report here what becomes of requests, and agents hear of it from here. The proxy itself, which listens and which agents
order about, is ``proxy``; it is not known here.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from relive.proxies.control import ControlHub
from relive.proxies.gate import Gate, GateKeeper, Holder, Holds
from relive.proxies.ingress._flight import Flight
from relive.proxies.ingress._log_sizes import LogSizes
from relive.proxies.ingress.options import ProxyOptions
from relive.proxies.listeners import resolve
from relive.proxies.relay import Relay
from relive.proxies.relay_writer import RelayWriter
from relive.proxies.service_socket import Address
from relive.recording.events import EventKind
from relive.recording.grpc import GrpcStatus
from relive.recording.writer import RecordingWriter

__all__ = ["ProxiedConnection", "Traffic"]

START_SECONDS = 10.0  # how long requests wait for a service that has never been seen
RETRY_SECONDS = 1.0  # and for one that has


class ProxiedConnection(GateKeeper, Holder, Protocol):
    """A connection, as far as it is known here."""

    def reports(self) -> list[dict[str, int | None]]:
        """What an agent is told of it when the gate closes."""

    def leave_if_idle(self) -> None:
        """Take leave of a service that has nothing to do for it."""

    def waits_on_service(self, flight: Flight) -> bool:
        """Whether it is the service's turn."""


class Traffic:
    """Lives in one event loop, as long as the proxy.

    Attributes:
        flights: by their numbers, in the order they were handed on, each with its connection.
        service_seen: it has taken a connection.
        speaks_http: a client did.
        relay: it carries connections beside those that are known here; None: nothing does.
        answered_count, broken_count: requests whose answer was whole, or will never be.
        errors: answers with a status of 500 or above.
        refused: requests that the proxy answered itself.
        unframed: connections without HTTP/1.
    """

    def __init__(
        self,
        options: ProxyOptions,
        loop: asyncio.AbstractEventLoop,
        hub: ControlHub,
        on_trouble: Callable[[str], None],
        *,
        writer: RecordingWriter | None = None,
    ) -> None:
        """
        Args:
            hub: the agents that hear of it.
            on_trouble: called with what is wrong with the recording.
            writer: of the recording; None: one as the options say.
        """
        self.options = options
        self.loop = loop
        self._hub = hub
        self.addresses: Sequence[Address] = resolve(options.upstream)
        self.writer = writer or _writer(options, on_trouble)
        self.gate: Gate[ProxiedConnection] = Gate(loop, self.writer)
        self.holds = Holds(loop, self.writer)
        self.logs = LogSizes(options.logs)
        self.flights: dict[int, tuple[Flight, ProxiedConnection]] = {}
        self.service_seen = False
        self.speaks_http = False
        self.service_speaks_first = False
        self.relay: Relay | None = None
        self.answered_count = self.errors = self.broken_count = self.refused = self.unframed = 0

    def wall_ns(self) -> int:
        """When what is told of now has happened, CLOCK_REALTIME."""
        return time.time_ns()

    def dial_seconds(self) -> float:
        """How long a new connection waits for the service."""
        return RETRY_SECONDS if self.service_seen else START_SECONDS

    def wants_hold(self) -> bool:
        """Whether the next request is held: an agent wants it and is there."""
        return self.options.every_request and bool(self._hub.links)

    def hold(self, request: int, connection: ProxiedConnection) -> None:
        """Hold a request until the agent says go."""
        self.holds.hold(request, connection)
        for keeper in list(self.gate.keepers.values()):
            keeper.leave_if_idle()
        self._hub.broadcast({"op": "hold", "request": request})

    def answered(self, flight: Flight) -> None:
        """An answer of the service is whole."""
        self.answered_count += 1
        if flight.has_failed and flight.status is not None:
            self.errors += 1
            self.writer.flush()  # the agent may look it up at once
            seconds = self.gate.clock() - flight.started
            self.publish_answered(
                flight.number, flight.status, seconds, self.wall_ns(), self.writer.last_seq, flight.grpc
            )

    def broken(self, flight: Flight, how: str, reused: int) -> None:
        """The service ended the connection before the answer was whole."""
        self.broken_count += 1
        self.writer.flush()  # the agent may look it up at once
        self.publish_broken(flight.number, how, reused, self.gate.clock() - flight.started, self.wall_ns())

    def service_unreachable(self, flight: Flight, error: OSError) -> None:
        """The service took no connection for this request."""
        self.broken(flight, "timed-out" if error.errno == errno.ETIMEDOUT else "refused", 0)

    def passes_unframed(self, connection: int, why: str) -> None:
        """A connection carries no HTTP/1. Said once: such a service may have thousands a second."""
        self.unframed += 1
        if self.unframed == 1:
            text = f"{why}: bytes are recorded as they come, and requests are not told apart"
            self.writer.append(EventKind.NOTE, connection, fields={"about": "unframed", "text": text})
            self._hub.broadcast({"op": "unframed", "connection": connection, "text": text})

    def heard_http(self) -> None:
        """A client speaks HTTP/1, so one that is silent need not be waiting for the service."""
        self.speaks_http = True
        if self.relay is not None:
            self.relay.client_speaks_http()

    def heard_service_first(self) -> None:
        """The service speaks before its clients."""
        self.service_speaks_first = True
        if self.relay is not None:
            self.relay.service_speaks_first()

    # To agents: the messages of ``proxy``'s table

    def publish_answered(
        self,
        request: int,
        status: int,
        seconds: float,
        wall_ns: int,
        seq: int,
        grpc: GrpcStatus | None = None,
    ) -> None:
        """An answer that says of a failure is whole, and recorded."""
        message = {"op": "answered", "request": request, "status": status}
        if grpc is not None:
            message["grpc"] = grpc.code
        self._publish(message, round(seconds, 6), wall_ns, {"seq": seq})

    def publish_broken(self, request: int, how: str, reused: int, seconds: float, wall_ns: int) -> None:
        """An answer will never be whole, and that is recorded."""
        message = {"op": "broken", "request": request, "how": how, "reused": reused}
        self._publish(message, round(seconds, 6), wall_ns)

    def publish_unanswered(self, request: int, seconds: float, wall_ns: int) -> None:
        """A request waits for its answer's head for longer than the service may take."""
        self._publish({"op": "unanswered", "request": request}, round(seconds, 3), wall_ns)

    def _publish(
        self, message: dict[str, Any], seconds: float, wall_ns: int, more: dict[str, Any] | None = None
    ) -> None:
        self._hub.broadcast(message | {"seconds": seconds, "wall_ns": wall_ns} | (more or {}))


def _writer(options: ProxyOptions, on_trouble: Callable[[str], None]) -> RecordingWriter:
    """The recording's writer: with a relay where there can be one and no request is held."""
    if options.relay is not None and not options.every_request:
        try:
            return RelayWriter(
                options.relay,
                options.recording,
                keep_bytes=options.keep_bytes,
                keep_seconds=options.keep_seconds,
                on_trouble=on_trouble,
            )
        except OSError as error:
            on_trouble(f"all traffic is carried by Python, which is slower: {error}")
    return RecordingWriter(
        options.recording,
        keep_bytes=options.keep_bytes,
        keep_seconds=options.keep_seconds,
        on_trouble=on_trouble,
    )

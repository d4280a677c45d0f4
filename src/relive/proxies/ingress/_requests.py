"""The way to the service: requests get their numbers' events, before their bytes are sent. ``_answers.py`` is the way back."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from relive.proxies.ingress._flight import BodyKeeper, Flight
from relive.proxies.ingress._intake import NumberedRequest
from relive.proxies.ingress._traffic import ProxiedConnection, Traffic
from relive.proxies.relay import HandedFlight
from relive.recording.events import EventKind

__all__ = ["RequestSide"]


class _Connection(ProxiedConnection, Protocol):
    """The connection, as far as its requests need it.

    Attributes:
        flights: requests that were handed to the service, in the order of their answers.
        upgraded: the request after which both ways are streams; None: there was none.
        client_address: ``ADDRESS:PORT``.
    """

    number: int
    flights: deque[Flight]
    upgraded: Flight | None
    client_address: str

    @property
    def local_port(self) -> int | None:
        """Of the connection to the service."""


class RequestSide:
    """Records the requests of one connection. It flushes nothing: its caller does, before the bytes that it is given back go out.

    Attributes:
        uploading: the request whose body the client is sending.
    """

    def __init__(self, traffic: Traffic, connection: _Connection) -> None:
        self._traffic = traffic
        self._connection = connection
        self._stream: BodyKeeper | None = None
        self.uploading: Flight | None = None

    def start(self, numbered: NumberedRequest) -> Flight:
        """A request's head goes to the service; its flight is the last one of the connection then."""
        traffic, connection, (number, head) = self._traffic, self._connection, numbered
        body = BodyKeeper(traffic.options.body_limit, head.length)
        flight = Flight(number, head.method, body, traffic.gate.clock())
        flight.asks_upgrade, flight.waits_for_continue = head.asks_upgrade, head.expects_continue
        fields: dict[str, object] = {"client": connection.client_address, "local_port": connection.local_port}
        if traffic.logs:
            fields["log_offsets"] = traffic.logs.sizes()
        traffic.writer.append(EventKind.REQUEST_STARTED, connection.number, number, head.raw, fields)
        traffic.flights[number] = (flight, connection)
        connection.flights.append(flight)
        self.uploading = flight
        return flight

    def record_body(self, raw: bytes) -> None:
        """Bytes of a request's body go to the service."""
        flight = self.uploading
        if flight is not None:
            flight.touched = self._traffic.gate.clock()
            kept = flight.body.feed(raw)
            if kept:
                self._traffic.writer.append(
                    EventKind.REQUEST_BODY, self._connection.number, flight.number, kept
                )

    def end(self) -> None:
        """The request is whole."""
        flight, self.uploading = self.uploading, None
        if flight is not None:
            flight.is_sent = True
            fields = flight.body.summary()
            self._traffic.writer.append(
                EventKind.REQUEST_ENDED, self._connection.number, flight.number, fields=fields
            )

    def begin_stream(self) -> None:
        """The answer to a request for an upgrade was that both ways are streams."""
        self._stream = BodyKeeper(self._traffic.options.body_limit, None)

    def record_stream(self, raw: bytes) -> None:
        """Bytes after an upgrade go to the service."""
        upgraded = self._connection.upgraded
        if upgraded is not None and self._stream is not None:
            kept = self._stream.feed(raw)
            if kept:
                self._traffic.writer.append(
                    EventKind.STREAM_TO_SERVICE, self._connection.number, upgraded.number, kept
                )

    def stream_summary(self, prefix: str) -> dict[str, Any] | None:
        """Sizes of the stream after an upgrade, each name with ``prefix`` before it; None: there was none."""
        return self._stream.summary(prefix) if self._stream is not None else None

    # From the relay

    def adopt(self, known: HandedFlight, *, is_counted: bool = True) -> None:
        """A request that the relay has sent, whose answer is not whole.

        Args:
            is_counted: with all that are under way; False: the relay does.
        """
        limit = self._traffic.options.body_limit
        body = BodyKeeper(limit, known.announced, seen=known.total)
        flight = Flight(known.number, b"HEAD" if known.is_head else b"GET", body, known.started)
        flight.touched, flight.is_sent, flight.reported = known.touched, known.is_sent, known.is_reported
        flight.status = known.status
        self._connection.flights.append(flight)
        if is_counted:
            self._traffic.flights[flight.number] = (flight, self._connection)

    def adopt_upload(self, number: int, left: int, seen: int) -> None:
        """The client was sending that request's body; its flight, if there is one, was adopted before.

        Args:
            left: bytes that are still to come.
            seen: bytes that have gone on.
        """
        flights = self._connection.flights
        if flights and flights[-1].number == number:
            self.uploading = flights[-1]
        else:  # it was answered before its body was whole
            body = BodyKeeper(self._traffic.options.body_limit, left + seen, seen=seen)
            self.uploading = Flight(number, b"GET", body, self._traffic.gate.clock())

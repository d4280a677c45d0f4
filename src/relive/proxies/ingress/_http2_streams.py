"""The requests of one connection of HTTP/2 in clear, as its packets show them: each stream's events, as of a request of HTTP/1.

Streams go on side by side, so each has its flight, and one that ends says nothing of the others. Where one direction can be read no
more both ways are bytes from there on, and what was under way is given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from relive.proxies.ingress._flight import BodyKeeper, Flight
from relive.proxies.ingress._traffic import ProxiedConnection, Traffic
from relive.recording.events import EventKind
from relive.recording.grpc import GrpcStatus, grpc_status
from relive.recording.http2 import (
    Http2Reader,
    Piece,
    StreamBody,
    StreamHead,
    StreamReset,
    Unreadable,
    answer_head,
    request_head,
)

__all__ = ["Http2Streams"]

_STATUS_DIGITS = 3
_STREAMS_MOST = (
    10_000  # open at one time; services admit some hundred, and one that ends is looked for among all
)
_UPGRADED = 1  # the stream of a request that asked for HTTP/2 (RFC 7540, 3.2)


class _Connection(ProxiedConnection, Protocol):
    """The connection, as far as its streams need it.

    Attributes:
        number: the connection's.
        flights: requests that were handed to the service and whose answers are not whole, in the order in which they began.
        client_address: ``ADDRESS:PORT``.
        requests: that have begun.
    """

    number: int
    flights: deque[Flight]
    client_address: str
    requests: int

    @property
    def local_port(self) -> int | None:
        """The other end of the service's connection."""

    def flight_over(self, flight: Flight) -> None:
        """The answer of that flight is whole, or will never be."""

    def http2_unreadable(self, reason: str) -> None:
        """Nothing more can be read."""


class Http2Streams:
    """Reads both directions.

    Args:
        upgraded: a request of HTTP/1 whose answer is the first stream's; None: the client began with HTTP/2.
    """

    def __init__(self, traffic: Traffic, connection: _Connection, upgraded: Flight | None = None) -> None:
        self._traffic = traffic
        self._connection = connection
        self._up, self._down = Http2Reader(preface=True), Http2Reader(preface=False)
        self._open: dict[int, Flight] = {} if upgraded is None else {_UPGRADED: upgraded}
        self._sending: dict[int, Flight] = {}  # streams whose requests are not whole
        self._kinds: dict[int, bytes] = {}  # of answers under way: their content types
        self._latest = 0 if upgraded is None else _UPGRADED
        self._is_left = False  # to be bytes

    def client_data(self, data: bytes) -> None:
        """The client's next bytes."""
        for piece in self._up.feed(data):
            if self._is_left:
                return
            self._of_client(piece)
        if self._up.table_bytes:
            self._down.allow_table(self._up.table_bytes)

    def service_data(self, data: bytes) -> None:
        """The service's next bytes."""
        for piece in self._down.feed(data):
            self._of_service(piece)
        if self._down.table_bytes:
            self._up.allow_table(self._down.table_bytes)

    def _of_client(self, piece: Piece) -> None:
        if isinstance(piece, Unreadable):
            self._connection.http2_unreadable(f"the client's HTTP/2 cannot be read: {piece.reason}")
        elif isinstance(piece, StreamReset):
            self._leave(piece.stream)
        elif isinstance(piece, StreamBody):
            self._take_body(piece)
        elif piece.stream in self._sending:
            self._end_request(piece.stream, piece)
        elif piece.stream > self._latest:  # else they are trailers of one that is over
            self._start(piece)

    def _of_service(self, piece: Piece) -> None:
        if isinstance(piece, Unreadable):
            self._connection.http2_unreadable(f"the service's HTTP/2 cannot be read: {piece.reason}")
            return
        flight = self._open.get(piece.stream)
        if flight is None:  # of a stream that was reset, or that the service has opened
            return
        if isinstance(piece, StreamReset):
            self._break(piece.stream, flight)
        elif isinstance(piece, StreamBody):
            self._take_answer_body(flight, piece.raw)
            if piece.is_last:
                self._end_answer(piece.stream, flight)
        else:
            self._take_answer_head(flight, piece)

    # Requests

    def _start(self, head: StreamHead) -> None:
        traffic, connection = self._traffic, self._connection
        if len(self._open) == _STREAMS_MOST:
            self._is_left = True
            connection.http2_unreadable(f"more than {_STREAMS_MOST} streams are open")
            return
        number = traffic.writer.next_request()
        body = _keeper(traffic, is_empty=head.is_last)
        flight = Flight(number, dict(head.headers).get(b":method", b""), body, traffic.gate.clock())
        fields: dict[str, Any] = {"client": connection.client_address, "local_port": connection.local_port}
        fields |= {"stream": head.stream}
        if traffic.logs:
            fields["log_offsets"] = traffic.logs.sizes()
        raw = request_head(head.headers)
        traffic.writer.append(EventKind.REQUEST_STARTED, connection.number, number, raw, fields)
        traffic.flights[number] = flight, connection
        connection.flights.append(flight)
        connection.requests += 1
        self._open[head.stream] = self._sending[head.stream] = flight
        self._latest = head.stream
        if head.is_last:
            self._end_request(head.stream, None)

    def _take_body(self, piece: StreamBody) -> None:
        flight = self._sending.get(piece.stream)
        if flight is None:
            return
        flight.touched = self._traffic.gate.clock()
        kept = flight.body.feed(piece.raw)
        if kept:
            self._append(EventKind.REQUEST_BODY, flight, kept)
        if piece.is_last:
            self._end_request(piece.stream, None)

    def _end_request(self, stream: int, trailers: StreamHead | None) -> None:
        flight = self._sending.pop(stream)
        flight.is_sent = True
        flight.touched = self._traffic.gate.clock()
        self._append(EventKind.REQUEST_ENDED, flight, fields=flight.body.summary() | _trailers(trailers))

    def _leave(self, stream: int) -> None:
        """The client wants no answer any more, perhaps since it has it."""
        self._sending.pop(stream, None)
        self._kinds.pop(stream, None)
        if (flight := self._open.pop(stream, None)) is not None:
            self._append(EventKind.REQUEST_ABANDONED, flight, fields={"how": "reset"})
            self._connection.flight_over(flight)

    # Answers

    def _take_answer_head(self, flight: Flight, piece: StreamHead) -> None:
        status = dict(piece.headers).get(b":status")
        if status is None or flight.status is not None:  # trailers
            self._end_answer(piece.stream, flight, piece)
            return
        said = int(status) if status.isdigit() and len(status) <= _STATUS_DIGITS else 0
        raw = answer_head(piece.headers)
        if said < 200:  # not the final one
            flight.touched = self._traffic.gate.clock()
            self._append(EventKind.INTERIM_ANSWER, flight, raw, {"status": said})
            return
        flight.status = said
        flight.answer = _keeper(self._traffic, is_empty=piece.is_last)
        flight.grpc = _grpc_of(piece.headers)  # where nothing else comes, it is here
        if flight.grpc is None:
            self._kinds[piece.stream] = dict(piece.headers).get(b"content-type", b"")
        self._append(EventKind.ANSWER_STARTED, flight, raw, {"status": said})
        if piece.is_last:
            self._end_answer(piece.stream, flight)

    def _take_answer_body(self, flight: Flight, raw: bytes) -> None:
        kept = flight.answer.feed(raw) if flight.answer is not None else b""
        if kept:
            self._append(EventKind.ANSWER_BODY, flight, kept)

    def _end_answer(self, stream: int, flight: Flight, trailers: StreamHead | None = None) -> None:
        traffic = self._traffic
        fields = flight.answer.summary() if flight.answer is not None else {}
        if traffic.logs:
            fields["log_offsets"] = traffic.logs.sizes_after()
        self._append(EventKind.ANSWER_ENDED, flight, fields=fields | _trailers(trailers))
        kind = self._kinds.pop(stream, None)
        if kind and trailers is not None:
            flight.grpc = _grpc_of(((b"content-type", kind), *trailers.headers))
        del self._open[stream]
        self._sending.pop(stream, None)  # what comes of it yet nobody waits for
        self._connection.flight_over(flight)
        traffic.answered(flight)

    def _break(self, stream: int, flight: Flight) -> None:
        del self._open[stream]
        self._kinds.pop(stream, None)
        self._sending.pop(stream, None)
        self._append(EventKind.ANSWER_BROKEN, flight, fields={"how": "reset", "reused": 0})
        self._connection.flight_over(flight)
        self._traffic.broken(flight, "reset", 0)

    def _append(
        self, kind: EventKind, flight: Flight, data: bytes = b"", fields: dict[str, Any] | None = None
    ) -> None:
        self._traffic.writer.append(kind, self._connection.number, flight.number, data, fields or {})


def _keeper(traffic: Traffic, *, is_empty: bool) -> BodyKeeper:
    """Of a body that may have any length: what headers say of it binds nobody here."""
    return BodyKeeper(traffic.options.body_limit, 0 if is_empty else None)


def _grpc_of(headers: Iterable[tuple[bytes, bytes]]) -> GrpcStatus | None:
    return grpc_status((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def _trailers(piece: StreamHead | None) -> dict[str, Any]:
    if piece is None or not piece.headers:
        return {}
    return {"trailers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in piece.headers]}

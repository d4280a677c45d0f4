"""The way back: what the service sends, recorded and passed to the client. ``_requests.py`` is the other way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from relive.proxies.ingress._flight import BodyKeeper, Flight
from relive.proxies.ingress._traffic import Traffic
from relive.recording.events import EventKind
from relive.recording.http1 import AnswerFramer, AnswerHead, Body, Cut, MessageEnd, Piece, Stream, Violation

__all__ = ["AnswerSide", "BegunAnswer"]


class _Connection(Protocol):
    """The connection, as far as its answers need it.

    Attributes:
        number: the connection's.
        flights: requests that were handed to the service, in the order of their answers.
        upgraded: the request after which both ways are streams; None: there was none.
        client_eof: the client sends no more.
    """

    number: int
    flights: deque[Flight]
    upgraded: Flight | None
    client_eof: bool

    def to_client(self, data: bytes) -> None:
        """Send bytes to the client."""

    def flight_over(self, flight: Flight) -> None:
        """The answer of the first flight is whole, or will never be."""

    def upgrade_decided(self, flight: Flight, *, is_stream: bool) -> None:
        """The answer to a request for an upgrade has come."""


class BegunAnswer(Protocol):
    """The answer to the first flight, of which somebody else has recorded the beginning, and records the rest."""

    def take(self, data: bytes) -> tuple[int, bool]:
        """The service's next bytes: how many of them are the answer's, and whether it is whole with them."""

    def pass_over(self, size: int) -> tuple[bool, bool]:
        """The service's next bytes were not taken: whether they are of the answer's body, and whether it is whole with them."""

    def end(self, how: str, *, client_eof: bool) -> bool:
        """The service's side ended ("closed" or "reset"): whether the answer is whole. Where it is not, that is recorded."""


class AnswerSide:
    """Frames and records the answers of one connection.

    When the service sends what is not HTTP/1.1 the client still gets every byte: the service comes first, and it is
    the client's to complain. From there on the bytes are recorded as a stream.
    """

    def __init__(
        self,
        traffic: Traffic,
        connection: _Connection,
        on_http2: Callable[[Flight], Callable[[bytes], None]] | None = None,
    ) -> None:
        """
        Args:
            on_http2: called with the request that a 101 has turned into a stream of HTTP/2; returns who takes what follows on the
                connection. None: HTTP/2 is a stream of bytes as any other.
        """
        self._traffic = traffic
        self._connection = connection
        self._framer = AnswerFramer()
        self._answered = 0
        self._stream: BodyKeeper | None = None
        self._is_unframed = False
        self._on_http2 = on_http2
        self._http2: Callable[[bytes], None] | None = None
        self._begun: BegunAnswer | None = None

    def expect(self, method: bytes) -> None:
        """A request of that method goes to the service."""
        self._framer.expect(method)

    def adopt(self, answered: int, methods: Sequence[bytes], begun: BegunAnswer | None = None) -> None:
        """Go on where so many answers have come.

        Args:
            methods: of the requests whose answers are to begin.
            begun: that to the request before them; None: there is none before them.
        """
        self._answered, self._begun = answered, begun
        for method in methods:
            self.expect(method)

    @property
    def answered(self) -> int:
        """Answers that are whole."""
        return self._answered

    @property
    def is_between(self) -> bool:
        """The service's next byte begins an answer."""
        is_framed = not self._is_unframed and self._stream is None and self._begun is None
        return is_framed and self._framer.is_between

    def service_data(self, data: bytes) -> None:
        """Bytes of the service: record them, then pass them on."""
        connection, framer = self._connection, self._framer
        if self._begun is not None and not (data := self._take_begun(self._begun, data)):
            return
        if self._is_unframed:
            self._handle_stream(data)
            pieces: list[Piece] = []
        else:
            held_before = framer.held
            pieces = framer.feed(data)
            for piece in pieces:
                self._handle_piece(piece)
            if held_before or framer.held:  # part of a head waits for its rest, so not the same bytes go on
                data = b"".join([piece.raw for piece in pieces])
        self._traffic.writer.flush()
        if data:
            connection.to_client(data)

    def pass_over(self, size: int) -> bool:
        """So many bytes of the service were not taken; False: they are not known to be of the body of an answer."""
        if self._begun is not None:
            is_of_body, is_over = self._begun.pass_over(size)
            if is_over:
                self._answered += 1
                self._end_begun()
            return is_of_body
        pieces = None if self._is_unframed or self._http2 is not None else self._framer.pass_over(size)
        if pieces is None:
            return False
        answer = self._connection.flights[0].answer
        if answer is not None:
            answer.pass_over(size)
        for piece in pieces:
            self._handle_piece(piece)
        return True

    def end(self, how: str) -> None:
        """The service's side ended ("closed" or "reset"); answers that are not whole are broken."""
        connection = self._connection
        if self._begun is not None:
            self._answered += self._begun.end(how, client_eof=connection.client_eof)
            self._end_begun()
        for piece in self._framer.eof() if how == "closed" else []:
            self._handle_piece(piece)
            if piece.raw:
                connection.to_client(piece.raw)
        while connection.flights:
            self._break(connection.flights[0], how)
        self._traffic.writer.flush()

    def _take_begun(self, begun: BegunAnswer, data: bytes) -> bytes:
        """Returns what is behind the answer."""
        taken, is_over = begun.take(data)
        if is_over:
            self._answered += 1
            self._end_begun()
        return data[taken:]

    def _end_begun(self) -> None:
        self._begun = None
        self._connection.flight_over(self._connection.flights[0])

    def stream_summary(self, prefix: str) -> dict[str, Any]:
        """Sizes of the stream after an upgrade, each name with ``prefix`` before it."""
        return self._stream.summary(prefix) if self._stream is not None else {}

    def _handle_piece(self, piece: Piece) -> None:
        if self._http2 is not None:
            self._http2(piece.raw)
            return
        if not self._connection.flights and isinstance(piece, (Body, AnswerHead, MessageEnd)):
            return  # the answer to a request that we have refused in its middle
        if isinstance(piece, Body):
            self._handle_body(piece.raw)
        elif isinstance(piece, AnswerHead):
            self._handle_head(piece)
        elif isinstance(piece, MessageEnd):
            self._end_answer()
        elif isinstance(piece, Stream):
            self._handle_stream(piece.raw)
        elif isinstance(piece, Violation):
            self._unframe(piece)
        elif isinstance(piece, Cut) and piece.raw:
            self._note("unframed", "the service closed in the middle of an answer's head", piece.raw)

    def _handle_head(self, head: AnswerHead) -> None:
        connection = self._connection
        traffic, flight = self._traffic, connection.flights[0]
        fields = {"status": head.status}
        if self._on_http2 is not None and flight.asks_upgrade and _begins_http2(head):
            self._http2 = self._on_http2(flight)
        if head.is_interim or self._http2 is not None:
            flight.touched = traffic.gate.clock()
            flight.waits_for_continue = False
            traffic.writer.append(
                EventKind.INTERIM_ANSWER, connection.number, flight.number, head.raw, fields
            )
            return
        flight.status = head.status
        announced = 0 if flight.method == b"HEAD" else head.length
        flight.answer = BodyKeeper(traffic.options.body_limit, announced)
        traffic.writer.append(EventKind.ANSWER_STARTED, connection.number, flight.number, head.raw, fields)
        is_stream = head.status == 101 or (flight.method == b"CONNECT" and 200 <= head.status < 300)
        if is_stream:
            self._stream = BodyKeeper(traffic.options.body_limit, None)
        if is_stream or flight.asks_upgrade:
            connection.upgrade_decided(flight, is_stream=is_stream)

    def _handle_body(self, raw: bytes) -> None:
        connection = self._connection
        flight = connection.flights[0]
        if flight.answer is not None:
            kept = flight.answer.feed(raw)
            if kept:
                self._traffic.writer.append(EventKind.ANSWER_BODY, connection.number, flight.number, kept)

    def _end_answer(self) -> None:
        connection = self._connection
        traffic, flight = self._traffic, connection.flights[0]
        fields = flight.answer.summary() if flight.answer is not None else {}
        if traffic.logs:
            fields["log_offsets"] = traffic.logs.sizes_after()
        if self._stream is not None:
            fields["upgraded"] = True
        traffic.writer.append(EventKind.ANSWER_ENDED, connection.number, flight.number, fields=fields)
        self._answered += 1
        connection.flight_over(flight)
        traffic.answered(flight)

    def _handle_stream(self, raw: bytes) -> None:
        connection = self._connection
        if self._stream is None:
            self._stream = BodyKeeper(self._traffic.options.body_limit, None)
        request = connection.upgraded.number if connection.upgraded is not None else 0
        kept = self._stream.feed(raw)
        if kept:
            self._traffic.writer.append(EventKind.STREAM_TO_CLIENT, connection.number, request, kept)

    def _unframe(self, violation: Violation) -> None:
        self._is_unframed = True
        self._note("unframed", f"the service sent what is not HTTP/1.1: {violation.reason}", b"")
        if violation.raw:
            self._handle_stream(violation.raw)

    def _break(self, flight: Flight, how: str) -> None:
        connection = self._connection
        if connection.client_eof:
            # The client left first, and the service did as it should: it stopped.
            fields: dict[str, Any] = {"how": "closed"}
            self._traffic.writer.append(
                EventKind.REQUEST_ABANDONED, connection.number, flight.number, fields=fields
            )
        else:
            fields = {"how": how, "reused": self._answered}
            self._traffic.writer.append(
                EventKind.ANSWER_BROKEN, connection.number, flight.number, fields=fields
            )
            self._traffic.broken(flight, how, self._answered)
        connection.flight_over(flight)

    def _note(self, about: str, text: str, raw: bytes) -> None:
        connection = self._connection
        fields = {"about": about, "text": text}
        self._traffic.writer.append(EventKind.NOTE, connection.number, 0, raw[: 64 * 1024], fields)


def _begins_http2(head: AnswerHead) -> bool:
    return head.status == 101 and any(one == (b"upgrade", b"h2c") for one in head.headers)

"""The way back: what the service sends, recorded and passed to the client. ``_connection.py`` is the other way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relive.proxies.ingress._flight import BodyKeeper, Flight
from relive.recording.events import EventKind
from relive.recording.http1 import AnswerFramer, AnswerHead, Body, Cut, End, Piece, Stream, Violation

if TYPE_CHECKING:
    from relive.proxies.ingress._connection import Connection

__all__ = ["AnswerSide"]


class AnswerSide:
    """Frames and records the answers of one connection.

    When the service sends what is not HTTP/1.1 the client still gets every byte: the service comes first, and it is
    the client's to complain. From there on the bytes are recorded as a stream.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._framer = AnswerFramer()
        self._answered = 0
        self._stream: BodyKeeper | None = None
        self._is_unframed = False

    def expect(self, method: bytes) -> None:
        """A request of that method goes to the service."""
        self._framer.expect(method)

    def take(self, data: bytes) -> None:
        """Bytes of the service: record them, then pass them on."""
        connection, framer = self._connection, self._framer
        if self._is_unframed:
            self._take_stream(data)
            pieces: list[Piece] = []
        else:
            held_before = framer.held
            pieces = framer.feed(data)
            for piece in pieces:
                self._take_piece(piece)
            if held_before or framer.held:  # part of a head waits for its rest, so not the same bytes go on
                data = b"".join([piece.raw for piece in pieces])
        connection.proxy.writer.flush()
        if data:
            connection.to_client(data)

    def end(self, how: str) -> None:
        """The service's side ended ("closed" or "reset"); answers that are not whole are broken."""
        connection = self._connection
        for piece in self._framer.eof() if how == "closed" else []:
            self._take_piece(piece)
            if piece.raw:
                connection.to_client(piece.raw)
        while connection.flights:
            self._break(connection.flights[0], how)
        connection.proxy.writer.flush()

    def stream_summary(self, prefix: str) -> dict[str, Any]:
        """Sizes of the stream after an upgrade, each name with ``prefix`` before it."""
        return self._stream.summary(prefix) if self._stream is not None else {}

    def _take_piece(self, piece: Piece) -> None:
        if not self._connection.flights and isinstance(piece, (Body, AnswerHead, End)):
            return  # the answer to a request that we have refused in its middle
        if isinstance(piece, Body):
            self._take_body(piece.raw)
        elif isinstance(piece, AnswerHead):
            self._take_head(piece)
        elif isinstance(piece, End):
            self._end_answer()
        elif isinstance(piece, Stream):
            self._take_stream(piece.raw)
        elif isinstance(piece, Violation):
            self._unframe(piece)
        elif isinstance(piece, Cut) and piece.raw:
            self._note("unframed", "the service closed in the middle of an answer's head", piece.raw)

    def _take_head(self, head: AnswerHead) -> None:
        connection = self._connection
        proxy, flight = connection.proxy, connection.flights[0]
        fields = {"status": head.status}
        if head.is_interim:
            flight.touched = proxy.gate.clock()
            flight.waits_for_continue = False
            proxy.writer.append(EventKind.INTERIM_ANSWER, connection.number, flight.number, head.raw, fields)
            return
        flight.status = head.status
        announced = 0 if flight.method == b"HEAD" else head.length
        flight.answer = BodyKeeper(proxy.options.body_limit, announced)
        proxy.writer.append(EventKind.ANSWER_STARTED, connection.number, flight.number, head.raw, fields)
        is_stream = head.status == 101 or (flight.method == b"CONNECT" and 200 <= head.status < 300)
        if is_stream:
            self._stream = BodyKeeper(proxy.options.body_limit, None)
        if is_stream or flight.asks_upgrade:
            connection.upgrade_decided(flight, is_stream=is_stream)

    def _take_body(self, raw: bytes) -> None:
        connection = self._connection
        flight = connection.flights[0]
        if flight.answer is not None:
            kept = flight.answer.keep(raw)
            if kept:
                connection.proxy.writer.append(EventKind.ANSWER_BODY, connection.number, flight.number, kept)

    def _end_answer(self) -> None:
        connection = self._connection
        proxy, flight = connection.proxy, connection.flights[0]
        fields = flight.answer.summary() if flight.answer is not None else {}
        if proxy.logs:
            fields["log_offsets"] = proxy.logs.sizes()
        if self._stream is not None:
            fields["upgraded"] = True
        proxy.writer.append(EventKind.ANSWER_ENDED, connection.number, flight.number, fields=fields)
        self._answered += 1
        connection.flight_over(flight)
        proxy.answered(flight)

    def _take_stream(self, raw: bytes) -> None:
        connection = self._connection
        if self._stream is None:
            self._stream = BodyKeeper(connection.proxy.options.body_limit, None)
        request = connection.upgraded.number if connection.upgraded is not None else 0
        kept = self._stream.keep(raw)
        if kept:
            connection.proxy.writer.append(EventKind.STREAM_TO_CLIENT, connection.number, request, kept)

    def _unframe(self, violation: Violation) -> None:
        self._is_unframed = True
        self._note("unframed", f"the service sent what is not HTTP/1.1: {violation.reason}", b"")
        if violation.raw:
            self._take_stream(violation.raw)

    def _break(self, flight: Flight, how: str) -> None:
        connection = self._connection
        if connection.client_eof:
            # The client left first, and the service did as it should: it stopped.
            fields: dict[str, Any] = {"how": "closed"}
            connection.proxy.writer.append(
                EventKind.REQUEST_ABANDONED, connection.number, flight.number, fields=fields
            )
        else:
            fields = {"how": how, "reused": self._answered}
            connection.proxy.writer.append(
                EventKind.ANSWER_BROKEN, connection.number, flight.number, fields=fields
            )
            connection.proxy.broken(flight, how, self._answered)
        connection.flight_over(flight)

    def _note(self, about: str, text: str, raw: bytes) -> None:
        connection = self._connection
        fields = {"about": about, "text": text}
        connection.proxy.writer.append(EventKind.NOTE, connection.number, 0, raw[: 64 * 1024], fields)

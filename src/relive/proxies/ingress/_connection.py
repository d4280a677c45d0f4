"""One client connection and the one service connection behind it.

Bytes go through unchanged. On the way to the service: bytes of the client are framed (``_intake``), each request gets its number,
events are recorded (``_requests``) and flushed, and only then the same bytes are sent. On the way back the same (``_answers``), so
nothing is seen by either side that the recording does not know. Here are the two sockets: what is read of which, what stops the way
to the service (a set of reasons; while there is one, the client is read until ``BACKLOG_HIGH_BYTES`` wait in memory, and then no
further), and how the connection ends.

What is not HTTP (the client's first line says so, or a service that speaks before its client) is passed on and recorded as it
comes (``_plain``). HTTP/2 with prior knowledge is passed on as it comes, too, and its streams are recorded as requests
(``_http2_streams``); none of them is held.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, cast

from relive.proxies.ingress import _own_answers as own_answers
from relive.proxies.ingress._answers import AnswerSide
from relive.proxies.ingress._flight import Flight
from relive.proxies.ingress._intake import Intake, NumberedRequest, Waiting
from relive.proxies.ingress._plain import PlainBytes
from relive.proxies.ingress._requests import RequestSide
from relive.proxies.ingress._speech import begins_http2
from relive.proxies.ingress._traffic import Traffic
from relive.proxies.ingress.takeover import OWN_ADDRESS
from relive.proxies.relay import HandedConnection
from relive.proxies.service_socket import Dialer, ServiceSocket
from relive.recording.events import EventKind
from relive.recording.http1 import Body, MessageEnd, RequestHead, Stream, Violation

if TYPE_CHECKING:
    from relive.proxies.ingress._http2_streams import Http2Streams

__all__ = ["ClientConnection"]

BACKLOG_HIGH_BYTES = 256 * 1024  # more than this waiting for the service, and the client is not read
LINGER_SECONDS = 2.0  # how long a client may take to read our last bytes and close
SILENT_SECONDS = 0.2  # a client that says nothing for so long may wait for the service to speak first
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


# Why nothing goes on to the service: bits of ``ClientConnection._stops`` (plain numbers, since flags of ``enum`` are slow).
_GATE = 1
_HOLD = 2
_REFUSED = 4  # for good: we answer ourselves and close


class ClientConnection(asyncio.Protocol):
    """The client's side of the pair, and the owner of the service's."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.number = 0
        self.flights: deque[Flight] = deque()  # handed to the service, in the order of their answers
        self.service: ServiceSocket | None = None
        self.upgraded: Flight | None = None
        self.client_eof = False
        self.requests = 0
        self._client: asyncio.Transport | None = None
        self.client_address = ""
        self._intake = Intake(traffic.heard_http, self._passes_unframed, self._begin_http2)
        self._http2: Http2Streams | None = None
        self._requests = RequestSide(self.traffic, self)
        self._answers = AnswerSide(self.traffic, self)
        self._held: NumberedRequest | None = None
        self._stops = 0
        self._plain = PlainBytes(traffic)
        self._silence: asyncio.TimerHandle | None = None
        self._dialer: Dialer | None = None
        self._down: OSError | None = None  # why the service cannot be reached
        self._is_read = True
        self._refusal: tuple[int, str] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._service_eof = False
        self._has_answered_ourselves = False
        self._ended = False
        self._handed: HandedConnection | None = None  # by the relay; its bytes are not passed on yet

    # The client's side, called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected. The service hears of it with the client's first byte, or when it may have to speak first."""
        self._client = client = cast(asyncio.Transport, transport)  # uvloop's is none by its bases
        client.set_write_buffer_limits(high=BACKLOG_HIGH_BYTES)
        if self._handed is not None:
            self._go_on(self._handed)
            return
        peer = transport.get_extra_info("peername")
        self.client_address = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else ""
        self.number = self.traffic.writer.next_connection()
        self.traffic.gate.keepers[self.number] = self
        if self.traffic.gate.is_closed:
            self._stops |= _GATE
        if self.traffic.service_speaks_first:
            self._dial()
        elif not self.traffic.speaks_http:
            self._silence = self.traffic.loop.call_later(SILENT_SECONDS, self._client_is_silent)

    def adopt(self, handed: HandedConnection) -> None:
        """Stand for a connection that the relay has carried until now. ``connection_made`` follows; the gate may close before."""
        traffic = self.traffic
        self._handed = handed
        self.number, self.requests, self.client_address = handed.connection, handed.requests, handed.address
        traffic.gate.keepers[self.number] = self
        for known in handed.flights:
            self._requests.adopt(known)
        self._answers.adopt(handed.answered, [flight.method for flight in self.flights])
        if handed.upload is not None:
            number, left, seen = handed.upload
            self._intake.go_on_with_body(left)
            self._requests.adopt_upload(number, left, seen)
        if handed.service_fd is not None:
            self._intake.knows_http()
            self.service = ServiceSocket(traffic.loop, socket.socket(fileno=handed.service_fd), self)
            self.service.sent = handed.sent
            self.service.pause_reading()  # there is nobody yet to whom it could be passed on
        if traffic.gate.is_closed:
            self.freeze()

    def _go_on(self, handed: HandedConnection) -> None:
        """There is a transport now: pass on what the relay had read."""
        self._handed = None
        if self._ended:
            cast(asyncio.Transport, self._client).abort()
            return
        if self.service is not None:
            self.service.resume_reading()  # first: a client that is slow already stops it again
        if handed.to_client:
            self.to_client(handed.to_client)
        if self.service is not None and handed.to_service:
            self.service.send(handed.to_service)
        if handed.from_service:
            self.service_data(handed.from_service)
        if handed.from_client:
            self.data_received(handed.from_client)
        elif handed.is_silent:
            self._dial()

    def _passes_unframed(self, why: str) -> None:
        self.traffic.passes_unframed(self.number, why)

    def _client_is_silent(self) -> None:
        if not (self.traffic.speaks_http or self._ended):
            self._dial()

    def data_received(self, data: bytes) -> None:
        """Bytes of the client: on to the service, or aside until they may."""
        if self._stops & _REFUSED:
            return
        self._intake.add(data)
        # Else when it is let go: nobody may be in the middle of a call while it commits.
        if not self.traffic.wants_hold():
            self._dial()
        if self._stops:
            self._adjust_reading()
        else:
            self._advance()

    def eof_received(self) -> bool:
        """The client sends no more; it may still be reading, so the connection stays."""
        self.client_eof = True
        waits = self._held is not None or not self._intake.is_empty
        if self._stops & _REFUSED or (self.service is None and self._dialer is None and not waits):
            self._close_client()
        else:
            self._advance()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: say so of all its requests, and to the service."""
        self._end(reset=exc is not None)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        if self.service is not None:
            self.service.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self.service is not None:
            self.service.resume_reading()

    # The gate and holds

    def freeze(self) -> None:
        """The gate closes: from now on no byte goes to the service."""
        self._stops |= _GATE
        for side in (self.service, self._dialer):
            if side is not None:
                side.freeze()

    def thaw(self) -> None:
        """The gate opened."""
        self._stops &= ~_GATE
        for side in (self.service, self._dialer):
            if side is not None:
                side.thaw()
        if self._ended:
            self.traffic.gate.keepers.pop(self.number, None)
        else:
            self._advance()

    def reports(self) -> list[dict[str, int | None]]:
        """What an agent needs to find it inside a commit, for each request whose turn it is, if the service knows it."""
        if self.service is None or self._ended:
            return []
        turns = list(self.flights) if self._http2 is not None else list(self.flights)[:1]
        sent, port = self.service.sent, self.service.local_port
        known: dict[str, int | None] = {"connection": self.number, "local_port": port, "sent": sent}
        return [known | {"request": flight.number} for flight in turns] or [known | {"request": None}]

    def leave_if_idle(self) -> None:
        """Take leave of a service that has nothing to do for this connection; the client's next request opens another.

        A service that is frozen while it waits for bytes may see its call fail (EINTR where SO_RCVTIMEO is set: signal(7)).
        """
        is_busy = bool(self.flights or self._requests.uploading) or self._is_stream or self._service_eof
        if self.service is None or is_busy:
            return
        self._record_end()
        self.service.close()
        self.service = None
        keepers = self.traffic.gate.keepers
        del keepers[self.number]
        self.number = self.traffic.writer.next_connection()
        keepers[self.number] = self
        self.requests = 0
        self._answers = AnswerSide(self.traffic, self)

    def _leave_before_commit(self) -> None:
        """The commit for which a request is held is to come: what has become idle since then is left, too."""
        if self.traffic.holds and not self._stops & _GATE and not self._ended:
            self.leave_if_idle()

    @property
    def _is_stream(self) -> bool:
        return self.upgraded is not None or self._intake.is_plain or self._http2 is not None

    @property
    def local_port(self) -> int | None:
        """Of the connection to the service; None without one."""
        return self.service.local_port if self.service is not None else None

    def waits_on_service(self, flight: Flight) -> bool:
        """Whether it is the service's turn: not the client's, which may be slow to send its body."""
        is_its_turn = self._http2 is not None or flight is self.flights[0]
        if not is_its_turn or flight.status is not None or self.service is None:
            return False
        return flight.is_sent or flight.waits_for_continue or self.service.backlog > 0

    def release(self, request: int) -> None:
        """The held request may go on."""
        if self._held is not None and self._held.number == request:
            self._intake.pieces.appendleft(self._held)
            self._held = None
            self._stops &= ~_HOLD
            self._advance()

    # The service's side (the bytes themselves go to AnswerSide)

    def service_data(self, data: bytes) -> None:
        """The service sent bytes."""
        is_first = not (self._is_stream or self.requests or self._stops & _REFUSED)
        if is_first and begins_http2(data):
            self._intake.unread()
            self._begin_http2()
        elif is_first and not data.startswith(b"HTTP/"):
            self.traffic.heard_service_first()
            self._intake.become_plain("the service speaks first")
            self._advance()
        if self._http2 is not None:
            self._http2.service_data(data)
            self.traffic.writer.flush()
            self.to_client(data)
        elif self._intake.is_plain:
            self._plain.to_client(self.number, data)
            self.traffic.writer.flush()
            self.to_client(data)
        else:
            self._answers.service_data(data)

    def service_eof(self) -> None:
        """The service closed its side."""
        self._answers.end("closed")
        if self._client is not None and not self._client.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                self._client.write_eof()
        self._service_eof = True
        if self._is_stream:
            self._close_if_over()
        else:
            self.linger()

    def service_lost(self, _error: OSError) -> None:
        """The connection to the service broke: break the client's likewise."""
        self._answers.end("reset")
        self._reset_client()

    def _reset_client(self) -> None:
        if self._client is not None:
            with contextlib.suppress(OSError):
                sock = self._client.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._client.close()

    def service_drained(self) -> None:
        """The service took what had waited."""
        if self.flights:
            self.flights[0].touched = self.traffic.gate.clock()
        self._close_if_over()
        self._adjust_reading()

    # For AnswerSide

    def to_client(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self._client is not None and not self._has_answered_ourselves:
            self._client.write(data)

    def flight_over(self, flight: Flight) -> None:
        """The answer of that flight is whole; of HTTP/1 it is the first one."""
        self.flights.remove(flight)
        self.traffic.flights.pop(flight.number, None)
        if self._http2 is not None:
            return
        if self.flights:
            self.flights[0].touched = self.traffic.gate.clock()
        elif self._refusal is not None:
            # Not now: the bytes of the answer that just ended are still to go out.
            self.traffic.loop.call_soon(self._answer_ourselves, *self._refusal)
        elif self.traffic.holds:
            self.traffic.loop.call_soon(self._leave_before_commit)

    def upgrade_decided(self, flight: Flight, *, is_stream: bool) -> None:
        """The answer to a request for an upgrade has come: what the client sent after it has a meaning now."""
        if is_stream:
            self.upgraded = flight
            self._requests.begin_stream()
        self._intake.upgrade_decided(is_stream=is_stream)
        self.traffic.loop.call_soon(self._advance)

    # HTTP/2

    def _begin_http2(self) -> None:
        # Only services of HTTP/2 in clear need it, and its libraries take 50 ms to be imported.
        from relive.proxies.ingress._http2_streams import Http2Streams  # noqa: PLC0415

        self._http2 = Http2Streams(self.traffic, self)

    def http2_unreadable(self, reason: str) -> None:
        """From here on it is bytes; what was under way is given up."""
        while self.flights:
            flight = self.flights[0]
            self._abandon(flight, "malformed")
            self.flight_over(flight)
        self._http2 = None
        self._intake.become_plain(reason)

    # The way to the service

    def _dial(self) -> None:
        """Have a connection to the service; nothing happens where there is one, or none can be had."""
        traffic = self.traffic
        if self.service is not None or self._dialer is not None or self._down is not None:
            return
        frozen = bool(self._stops & _GATE)
        self._dialer = Dialer(
            traffic.loop,
            traffic.addresses,
            traffic.dial_seconds(),
            self._dialed,
            frozen=frozen,
            source=OWN_ADDRESS if traffic.options.stand_in else None,
        )

    def _dialed(self, result: socket.socket | OSError) -> None:
        self._dialer = None
        fields: dict[str, object] = {"client": self.client_address, "local_port": None}
        if isinstance(result, OSError):
            if self._intake.is_empty:  # called for a client that has said nothing
                if self.traffic.service_speaks_first:
                    self._reset_client()
                return
            self._down = result
        else:
            self.traffic.service_seen = True
            self.service = ServiceSocket(self.traffic.loop, result, self)
            fields["local_port"] = self.service.local_port
        self.traffic.writer.append(EventKind.CONNECTION_OPENED, self.number, fields=fields)
        self._advance()

    def _advance(self) -> None:
        """Hand on what waits, as far as nothing stops it."""
        out: list[bytes] = []
        while not self._stops and not self._ended and self._step(out):
            pass
        self.traffic.writer.flush()
        if out and self.service is not None:
            self.service.send(out[0] if len(out) == 1 else b"".join(out))
        if self.client_eof and not (self._intake.has_more or self._stops) and self.service is not None:
            if self._intake.is_plain:
                self._plain.client_ended(self.number)
            self.service.shutdown()
            self._close_if_over()
        self._adjust_reading()

    def _step(self, out: list[bytes]) -> bool:
        """Take one thing that waits; False if there is none that can be taken now."""
        intake = self._intake
        if (intake.is_plain or self._http2 is not None) and intake.has_raw and not intake.pieces:
            return self._pass_on(out)
        if not intake.pieces:
            return intake.frame(is_last=self.client_eof)
        piece = intake.pieces[0]
        if isinstance(piece, RequestHead) and self._down is None and self.traffic.wants_hold():
            intake.pieces.popleft()
            self._hold(piece)
        elif self._is_connected(piece):
            self._handle_piece(intake.pieces.popleft(), out)
        else:
            return False
        return True

    def _is_connected(self, piece: Waiting) -> bool:
        """The service is there for the piece, or it needs none; else it is called."""
        if self.service is None and self._down is None and not isinstance(piece, Violation):
            self._dial()
            return False
        return True

    def _pass_on(self, out: list[bytes]) -> bool:
        if self._down is not None:  # as the service would have: it takes no connection
            self._reset_client()
            return False
        if self.service is None:
            self._dial()
            return False
        data = self._intake.pop_raw()
        if self._http2 is not None:
            self._http2.client_data(data)
        else:
            self._plain.to_service(self.number, data)
        out.append(data)
        return True

    def _close_if_over(self) -> None:
        """Close when both sides have said their last word, and all of it is through."""
        waits = self._intake.has_more or self._stops or (self.service is not None and self.service.backlog)
        if self._service_eof and self.client_eof and not waits:
            self._close_client()

    def _handle_piece(self, piece: Waiting, out: list[bytes]) -> None:
        if isinstance(piece, RequestHead):
            self._handle_head(NumberedRequest(self.traffic.writer.next_request(), piece), out)
        elif isinstance(piece, NumberedRequest):
            self._handle_head(piece, out)
        elif isinstance(piece, Body):
            self._requests.record_body(piece.raw)
            out.append(piece.raw)
        elif isinstance(piece, MessageEnd):
            self._requests.end()
        elif isinstance(piece, Stream):
            self._requests.record_stream(piece.raw)
            out.append(piece.raw)
        elif isinstance(piece, Violation):
            self._refuse(piece)

    def _hold(self, head: RequestHead) -> None:
        self._held = NumberedRequest(self.traffic.writer.next_request(), head)
        self._stops |= _HOLD
        self.traffic.hold(self._held.number, self)

    def _handle_head(self, numbered: NumberedRequest, out: list[bytes]) -> None:
        flight = self._requests.start(numbered)
        self.requests += 1
        self._answers.expect(flight.method)
        out.append(numbered.head.raw)
        if self._down is not None:
            self.traffic.service_unreachable(flight, self._down)
            self._answer_ourselves(*own_answers.unreachable(self.traffic.options.upstream, self._down))

    # Refusing, closing

    def _refuse(self, violation: Violation) -> None:
        """The client does not speak HTTP/1.1 (safely): answer ourselves, once the answers before it are out."""
        fields = {"about": "refused", "text": violation.reason, "status": violation.status}
        self.traffic.writer.append(EventKind.NOTE, self.number, 0, violation.raw[: 64 * 1024], fields)
        self.traffic.refused += 1
        text = own_answers.refused(violation.reason)
        if self.flights and self.flights[-1] is self._requests.uploading:
            self._abandon(self.flights.pop(), "malformed")
        self._stops |= _REFUSED
        if self.flights:
            self._refusal = (violation.status, text)
        else:
            self._answer_ourselves(violation.status, text)

    def _answer_ourselves(self, status: int, text: str) -> None:
        """Give the client an answer of Relive's own, as the answer of the open flight if there is one, and close."""
        if self._has_answered_ourselves:
            return
        self._has_answered_ourselves = True
        self._stops |= _REFUSED
        head, body = own_answers.answer(status, text)
        writer = self.traffic.writer
        if self.flights:
            flight = self.flights.popleft()
            self.traffic.flights.pop(flight.number, None)
            begun = {"status": status, "by": "relive"}
            writer.append(EventKind.ANSWER_STARTED, self.number, flight.number, head, begun)
            writer.append(EventKind.ANSWER_BODY, self.number, flight.number, body)
            writer.append(EventKind.ANSWER_ENDED, self.number, flight.number, fields={"bytes": len(body)})
            writer.flush()
            body = b"" if flight.method == b"HEAD" else body
        if self._client is not None and not self._client.is_closing() and not self._service_eof:
            self._client.write(head + body)
            self._client.write_eof()
        if self.service is not None:
            self.service.close()
        self.linger()

    def linger(self) -> None:
        """Close the client's side soon: at once, our unread input would reset it and take our last bytes with it."""
        if self.client_eof:
            self._close_client()
        elif self._lingering is None:
            self._lingering = self.traffic.loop.call_later(LINGER_SECONDS, self._close_client)
            self._adjust_reading()

    def shut(self) -> None:
        """The proxy ends."""
        client = self._client
        self._end(reset=False)
        if client is not None:
            client.abort()

    def _close_client(self) -> None:
        if self._client is not None:
            self._client.close()

    def _end(self, *, reset: bool) -> None:
        if self._ended:
            return
        self._ended = True
        for timer in (self._lingering, self._silence):
            if timer is not None:
                timer.cancel()
        if self._held is not None:
            self.traffic.holds.forget(self._held.number)
        while self.flights:
            self._abandon(self.flights.popleft(), "reset" if reset else "closed")
        if self._dialer is not None:
            self._dialer.cancel()
        if self.service is not None or self._down is not None:
            self._record_end()
        if self.service is not None:
            self.service.close(reset=reset)
        if not self._stops & _GATE:
            self.traffic.gate.keepers.pop(self.number, None)
        self._client = None

    def _abandon(self, flight: Flight, how: str) -> None:
        self.traffic.flights.pop(flight.number, None)
        self.traffic.writer.append(
            EventKind.REQUEST_ABANDONED, self.number, flight.number, fields={"how": how}
        )

    def _record_end(self) -> None:
        sent = self.service.sent if self.service is not None else 0
        fields: dict[str, object] = {"sent": sent, "requests": self.requests}
        up = self._requests.stream_summary("up_")
        if up is not None:
            fields |= up | self._answers.stream_summary("down_")
        if self._intake.is_plain:
            fields |= self._plain.summary()
        self.traffic.writer.append(EventKind.CONNECTION_CLOSED, self.number, fields=fields)
        self.traffic.writer.flush()

    def _adjust_reading(self) -> None:
        """Read the client unless much of what it sent is waiting; a client that is not read cannot be seen to leave."""
        waiting = self._intake.raw_bytes > BACKLOG_HIGH_BYTES
        slow = self.service is not None and self.service.backlog > BACKLOG_HIGH_BYTES
        early = self._intake.held_for_answer > BACKLOG_HIGH_BYTES
        wanted = bool(self._stops & _REFUSED) or not (waiting or slow or early)
        if wanted == self._is_read or self._client is None or self.client_eof or self._client.is_closing():
            return
        self._is_read = wanted
        if wanted:
            self._client.resume_reading()
        else:
            self._client.pause_reading()

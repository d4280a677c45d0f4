"""One client connection as packets show it, which nothing of Relive carries: the same framing and events as ``_connection``.

What it does not know it does not guess. A connection that stood before the packets were taken, or of which some are missing, is
begun *in the middle*: from the first whole head of a request that comes in one segment on. Where the service has said something
that does not begin as an answer of HTTP/1, and the client, who has got all of it, says to that what is no request, it is no HTTP/1.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from relive.proxies.ingress._answers import AnswerSide
from relive.proxies.ingress._flight import Flight
from relive.proxies.ingress._intake import Intake, NumberedRequest
from relive.proxies.ingress._observed_traffic import ObservedTraffic
from relive.proxies.ingress._plain import PlainBytes
from relive.proxies.ingress._reassembly import ByteStream
from relive.proxies.ingress._requests import RequestSide
from relive.proxies.ingress._segments import ACK, FIN, RST, SYN, Ends, SeenBytes, Segment, Untaken
from relive.proxies.ingress._sights import HandedSight, HandedStream, PlainSight
from relive.proxies.ingress._speech import Speech, begins_http2, speech_of
from relive.recording.events import EventKind
from relive.recording.http1 import Body, MessageEnd, RequestHead, Stream, Violation

if TYPE_CHECKING:
    from relive.proxies.ingress._http2_streams import Http2Streams

__all__ = ["ObservedConnection"]

AHEAD_MOST = 16 * 1024 * 1024  # [bytes] that may wait for those before them, of one direction
_WHOLE_HEAD = re.compile(rb"\n\r?\n")


class ObservedConnection:
    """From its first segment to its last one.

    Attributes:
        is_over: nothing more is to be said of it.
        is_known: its beginning was seen, or that of a request in its middle.
        began_in_middle: the latter.
        given: bytes of the client that the events hold, by their place in the stream.
    """

    def __init__(self, traffic: ObservedTraffic, ends: Ends) -> None:
        self.traffic = traffic
        self.ends = ends
        self.number = 0
        self.flights: deque[Flight] = deque()
        self.upgraded: Flight | None = None
        self.client_eof = False
        self.requests = 0
        self.client_address = ends.client_address
        self.is_over = False
        self.began_in_middle = False
        self.given = 0
        self._is_limited = False
        self._next: int | None = None  # with a limit: sequence number of the first byte that a commit has not
        self._heard_service = False
        self._is_split = False
        self._beyond: list[SeenBytes] = []
        self._up: ByteStream | None = None
        self._first = -1  # sequence number of the client's first byte that is known
        self._down: ByteStream | None = None
        self._intake = Intake(traffic.heard_http, self._passes_unframed, self._begin_http2)
        self._http2: Http2Streams | None = None
        self._requests = RequestSide(traffic, self)
        self._answers = AnswerSide(traffic, self, self._upgrade_to_http2)
        self._service_eof = False
        self._first_answer_is_open = False
        self._plain = PlainBytes(traffic)
        # As long as nothing is known: sequence number behind what the service has said since the client has; None: nothing.
        self._told_until: int | None = None
        self._tells_http = self._has_missed = False
        self._stood_plain = False

    @property
    def is_known(self) -> bool:
        """See above."""
        return self._up is not None

    @property
    def local_port(self) -> int | None:
        """The other end of the service's connection: the client's own.

        None for a request of which a commit has half a head. It cannot be gone on with there, but be sent again as a whole, by
        another connection.
        """
        return self.ends.client_port if not self._is_split else None

    @property
    def is_busy(self) -> bool:
        """Something of it is under way: where packets are missing, some of its own may be."""
        return bool(self.flights) or self._intake.has_part_of_head or not self._intake.is_empty

    @property
    def is_http2(self) -> bool:
        """Its requests are streams, side by side."""
        return self._http2 is not None

    def open_requests(self) -> list[dict[str, Any]]:
        """Those whose answers the service may be working on: of HTTP/1 the oldest."""
        found = list(self.flights) if self.is_http2 else list(self.flights)[:1]
        known = {"connection": self.number, "local_port": self.local_port}
        return [known | {"request": flight.number} for flight in found]

    def waits_on_service(self, flight: Flight) -> bool:
        """Whether it is the service's turn."""
        if flight.status is not None or (flight is not self.flights[0] and self._http2 is None):
            return False
        return flight.is_sent or flight.waits_for_continue

    def began_with(self, syn: Segment) -> bool:
        """That SYN of the client is of another connection of the same ends, which follows this one."""
        return self._up is not None and self._first != (syn.sequence + 1) % (1 << 32)

    # For who holds ``ProxiedConnection``: nothing is held, so nothing can be done

    def freeze(self) -> None:
        """Nothing passes here."""

    def thaw(self) -> None:
        """Nothing passes here."""

    def reports(self) -> list[dict[str, int | None]]:
        """Nothing passes here."""
        return []

    def shut(self) -> None:
        """Nothing passes here."""

    def release(self, request: int) -> None:
        """Nothing is held."""

    def leave_if_idle(self) -> None:
        """The connection is not Relive's."""

    # Segments

    def observe(self, segment: Segment) -> bool:
        """Take the next one that the kernel saw; False if packets before it are missing: no more can be said of this connection."""
        if segment.flags & SYN:
            self._observe_syn(segment)
        elif self._up is None and not (self._begins_here(segment) or self._begins_plain(segment)):
            self._note_told(segment)
            self.is_over = bool(segment.flags & (FIN | RST))
            return True
        up = self._up
        if up is None:  # only the service's SYN was seen
            return True
        if self._down is None and segment.from_client and segment.flags & ACK:
            self._down = ByteStream(segment.acknowledged)
        stream, other = (up, self._down) if segment.from_client else (self._down, up)
        if stream is None:
            self.is_over = bool(segment.flags & RST)  # nobody listens
            return True
        if segment.flags & ACK and other is not None and other.lacks_before(segment.acknowledged):
            return False
        first = (segment.sequence + bool(segment.flags & SYN)) % (1 << 32)
        if segment.data and not self._give(stream.add(first, segment.data), from_client=segment.from_client):
            return False
        if segment.lacks and not segment.from_client:
            behind = (first + len(segment.data)) % (1 << 32)
            if not self._give(stream.add(behind, Untaken(segment.lacks)), from_client=False):
                return False
        self._end_segment(segment, stream, up)
        return stream.ahead <= AHEAD_MOST

    def _give(self, pieces: Sequence[bytes | Untaken], *, from_client: bool) -> bool:
        for piece in pieces:
            if isinstance(piece, Untaken):
                is_whole = not from_client and self._pass_over(len(piece))
            else:
                is_whole = self._client_bytes(piece) if from_client else self._service_bytes(piece)
            if not is_whole:
                return False
        return True

    def _end_segment(self, segment: Segment, stream: ByteStream, up: ByteStream) -> None:
        if segment.flags & FIN and not (segment.lacks and segment.from_client):
            first = segment.sequence + bool(segment.flags & SYN)
            stream.end_at((first + len(segment.data) + segment.lacks) % (1 << 32))
        self._see_ends(up)
        if segment.flags & RST:
            self._reset(by_client=segment.from_client)

    # A connection that C has followed until now

    def adopt(self, handed: HandedSight) -> None:
        """Know what is known of it. ``go_on`` follows."""
        self.number, self.requests, self.given = handed.connection, handed.requests, handed.given
        self.began_in_middle, self._first_answer_is_open = handed.began_in_middle, handed.first_answer_is_open
        self.client_eof, self._service_eof = handed.client_eof, handed.service_eof
        self._heard_service, self._is_split = handed.heard_service, handed.is_split
        self._is_limited, self._next, self._first = handed.is_limited, handed.following, handed.first
        self._beyond = list(handed.beyond)
        self._up, self._down = _stream(handed.up), _stream(handed.down)
        for known in handed.flights:
            self._requests.adopt(known, is_counted=known.status is None)
        methods = [flight.method for flight in self.flights if flight.status is None]
        self._answers.adopt(handed.answered, methods, handed.answer)
        if handed.upload is not None:
            number, left, seen = handed.upload
            self._intake.go_on_with_body(left)
            self._requests.adopt_upload(number, left, seen)
        if handed.is_spoken:
            self._intake.knows_http()

    def go_on(self, handed: HandedSight, segment: Segment | None) -> bool:
        """Act on what C has not acted on, to the end of the segment in whose middle it was, if any. As ``observe``."""
        up = self._up
        assert up is not None
        observed = self.traffic.observed
        if handed.held_of_client:
            with observed.as_seen(handed.odd_ns or observed.seen[1]):
                self._intake.add(handed.held_of_client)
                self._advance()
        if handed.held_of_service:
            self._answers.service_data(handed.held_of_service)
        for one in handed.from_client:
            self._client_bytes_of(one)
        if not self._give(handed.from_service, from_client=False):
            return False
        stream = up if segment is None or segment.from_client else self._down
        assert stream is not None
        if segment is None:
            self._see_ends(up)
        else:
            self._end_segment(segment, stream, up)
        return stream.ahead <= AHEAD_MOST

    @property
    def plainness(self) -> PlainSight | None:
        """What is to be known of it where nothing is under way, or no HTTP ever was, and C can follow it; None elsewhere."""
        up, down = self._up, self._down
        if (
            self.is_http2
            or self.flights
            or up is None
            or down is None
            or not (self.number and up.is_plain and down.is_plain)
        ):
            return None
        is_speech = self._intake.is_plain and not self._intake.has_raw and not self.requests
        is_between = (is_speech or self._intake.is_between) and self._answers.is_between
        is_between = is_between and self._requests.uploading is None
        is_odd = self._is_limited or self._beyond or self._is_split or self._first_answer_is_open
        if not is_between or is_odd or self.client_eof or self._service_eof or not self._heard_service:
            return None
        return PlainSight(
            *(
                self.number,
                self.requests,
                self._answers.answered,
                self.given,
                self._first,
                self.began_in_middle,
            ),
            *((up.base, up.place), (down.base, down.place)),
            self._plain.seen if is_speech else None,
        )

    def _observe_syn(self, segment: Segment) -> None:
        if segment.from_client:
            if self._up is None:
                self._first = (segment.sequence + 1) % (1 << 32)
                self._up = ByteStream(self._first)
        else:
            self._down = self._down or ByteStream((segment.sequence + 1) % (1 << 32))

    def _begins_here(self, segment: Segment) -> bool:
        """Whether a request begins, and with it what is known: its head came whole, and nothing of an answer is under way."""
        data = segment.data
        is_request = segment.from_client and speech_of(data) is Speech.HTTP and _WHOLE_HEAD.search(data)
        if not (is_request and segment.flags & ACK):
            return False
        self._first = segment.sequence
        self._up, self._down = ByteStream(segment.sequence), ByteStream(segment.acknowledged)
        self.began_in_middle = self._first_answer_is_open = True
        return True

    def know(self, *, has_missed: bool, tells_http: bool, told_until: int | None) -> None:
        """What C has seen of it while nothing was known."""
        self._has_missed, self._tells_http, self._told_until = has_missed, tells_http, told_until

    def _note_told(self, segment: Segment) -> None:
        if segment.from_client:
            if segment.data:
                self._told_until, self._has_missed = None, True
        elif segment.data:
            self._tells_http = self._tells_http or segment.data.startswith(b"HTTP/1.")
            behind = (segment.sequence + len(segment.data) + segment.lacks) % (1 << 32)
            self._told_until = None if self._tells_http else behind

    def _begins_plain(self, segment: Segment) -> bool:
        """Whether the client, to all that the service has said, says what is no HTTP/1."""
        is_turn = segment.from_client and segment.flags & ACK and segment.acknowledged == self._told_until
        if not is_turn or speech_of(segment.data) not in (Speech.OTHER, Speech.HTTP_2):
            return False
        self._first = segment.sequence
        self._up, self._down = ByteStream(segment.sequence), ByteStream(segment.acknowledged)
        self.began_in_middle = self._stood_plain = self._has_missed = True
        return True

    def lose(self) -> None:
        """Packets are missing: what was under way is lost, and what comes next is another connection of the recording."""
        while self.flights:
            self.traffic.flights.pop(self.flights.popleft().number, None)
        self._record_end(lost=True)

    def limit(self, following: int | None) -> None:
        """A commit is being placed: what it does not have of the client waits until ``release_beyond``.

        Args:
            following: sequence number of the client's first byte that it has not. None: it has no such connection, either since
                that is over, or since the service had not taken it from its queue, and then has said nothing on it.
        """
        self._is_limited = following is not None or not self._heard_service
        self._next = following

    def is_written(self, segment: Segment, following: int) -> bool:
        """It has bytes of the service, none of which has that sequence number or a later one."""
        down, size = self._down, len(segment.data) + segment.lacks
        if segment.from_client or down is None or not size or segment.flags & (SYN | FIN | RST):
            return False
        return down.place_of(segment.sequence + size) <= down.place_of(following)

    def release_beyond(self) -> bool:
        """Go on with what waited, if something did. As ``observe``."""
        self._is_limited = False
        self._is_split = self._intake.has_part_of_head
        waiting, self._beyond = self._beyond, []
        whole = all(self._client_bytes_of(one) for one in waiting)
        if self._up is not None:
            self._see_ends(self._up)
        return whole

    # Bytes in order

    def _client_bytes_of(self, one: SeenBytes) -> bool:
        with self.traffic.observed.as_seen(one.wall_ns):
            return self._client_bytes(one.data)

    def _client_bytes(self, data: bytes) -> bool:
        if self._is_limited:
            allowed = self._allowed(len(data))
            if allowed < len(data):
                self._beyond.append(SeenBytes(self.traffic.observed.seen[1], data[allowed:]))
                data = data[:allowed]
            if not data:
                return True
        self._open()
        if self._stood_plain and not self._intake.is_plain:
            self._intake.become_plain("the connection stood before it was recorded")
        self.given += len(data)
        self._intake.add(data)
        self._advance()
        return True

    def _allowed(self, count: int) -> int:
        """How many of the client's next bytes the commit has."""
        if self._next is None or self._up is None:
            return 0
        return min(count, max(0, self._up.place_of(self._next) - self.given))

    def _hear_service(self) -> None:
        self._heard_service = True
        if (
            self._is_limited and self._next is None
        ):  # so it had taken the connection, which was over by the commit
            self.release_beyond()

    def _service_bytes(self, data: bytes) -> bool:
        self._hear_service()
        is_first = not (self._intake.is_plain or self.requests)
        if self._first_answer_is_open:
            self._first_answer_is_open = False
            if not b"HTTP/1.".startswith(data[:7]):  # it is the rest of an answer whose request was not seen
                return False
        self._open()
        if is_first and not self.is_http2 and begins_http2(data):
            self._intake.unread()
            self._begin_http2()
        if self._http2 is not None:
            self._http2.service_data(data)
            return True
        if is_first and not data.startswith(b"HTTP/"):
            self.traffic.heard_service_first()
            self._intake.become_plain("the service speaks first")
            self._advance()
        if self._intake.is_plain and not self.flights:
            self._plain.to_client(self.number, data)
        else:
            self._answers.service_data(data)
            self._advance()  # what the client has sent behind a request for an upgrade has a meaning now
        return True

    def _pass_over(self, size: int) -> bool:
        """The service's next bytes were not taken; False: they are not known to be of the body of an answer."""
        self._hear_service()
        is_of_answer = bool(self.flights) and self._http2 is None and not self._first_answer_is_open
        return is_of_answer and self._answers.pass_over(size)

    def _see_ends(self, up: ByteStream) -> None:
        if up.has_ended and not self._beyond and not self.client_eof:
            self.client_eof = True
            self._advance()
            if self._intake.is_plain:
                self._plain.client_ended(self.number)
        if self._down is not None and self._down.has_ended and not self._service_eof:
            self._service_eof = True
            self._hear_service()
            self._answers.end("closed")
        if self.client_eof and self._service_eof:
            self._end("closed")

    def _reset(self, *, by_client: bool) -> None:
        if not by_client:
            self._hear_service()
            self._answers.end("reset")
        self._end("reset")

    def _end(self, how: str) -> None:
        while self.flights:
            flight = self.flights.popleft()
            self.traffic.flights.pop(flight.number, None)
            fields = {"how": how}
            self.traffic.writer.append(EventKind.REQUEST_ABANDONED, self.number, flight.number, fields=fields)
        self._record_end()

    def _open(self) -> None:
        if not self.number:
            self.number = self.traffic.writer.next_connection()
            self.traffic.service_seen = True
            fields: dict[str, Any] = {"client": self.client_address, "local_port": self.local_port}
            if self.began_in_middle:
                fields["from_middle"] = True
            self.traffic.writer.append(EventKind.CONNECTION_OPENED, self.number, fields=fields)
            if self._has_missed:
                self.traffic.note_missed(self.number)

    def _record_end(self, *, lost: bool = False) -> None:
        if self.is_over:
            return
        self.is_over = True
        if not self.number:
            return
        fields: dict[str, Any] = {"sent": self.given, "requests": self.requests}
        up = self._requests.stream_summary("up_")
        if up is not None:
            fields |= up | self._answers.stream_summary("down_")
        if self._intake.is_plain:
            fields |= self._plain.summary()
        if lost:
            fields["lost"] = True
        self.traffic.writer.append(EventKind.CONNECTION_CLOSED, self.number, fields=fields)

    # Pieces of the client's bytes

    def _advance(self) -> None:
        intake = self._intake
        while True:
            if intake.pieces:
                self._record_piece(intake.pieces.popleft())
            elif self._http2 is not None and intake.has_raw:
                self._http2.client_data(intake.pop_raw())
            elif intake.is_plain and intake.has_raw:
                self._plain.to_service(self.number, intake.pop_raw())
            elif not intake.frame(is_last=self.client_eof):
                return

    def _record_piece(self, piece: object) -> None:
        if isinstance(piece, RequestHead):
            flight = self._requests.start(NumberedRequest(self.traffic.writer.next_request(), piece))
            self.requests += 1
            self._is_split = False
            self._answers.expect(flight.method)
        elif isinstance(piece, Body):
            self._requests.record_body(piece.raw)
        elif isinstance(piece, MessageEnd):
            self._requests.end()
        elif isinstance(piece, Stream) and self._http2 is not None:
            self._http2.client_data(piece.raw)
        elif isinstance(piece, Stream):
            self._requests.record_stream(piece.raw)
        elif isinstance(piece, Violation):
            self._become_unframed(piece)

    def _become_unframed(self, violation: Violation) -> None:
        """The client does not speak HTTP/1 (safely). What the service makes of that is its own affair."""
        if self.flights and self.flights[-1] is self._requests.uploading:
            flight = self.flights.pop()
            self.traffic.flights.pop(flight.number, None)
            fields = {"how": "malformed"}
            self.traffic.writer.append(EventKind.REQUEST_ABANDONED, self.number, flight.number, fields=fields)
        text = f"the client sent what is not HTTP/1.1: {violation.reason}"
        fields = {"about": "unframed", "text": text}
        self.traffic.writer.append(EventKind.NOTE, self.number, 0, violation.raw[: 64 * 1024], fields)
        self._intake.become_plain(text)
        self._plain.to_service(self.number, violation.raw)

    def _passes_unframed(self, why: str) -> None:
        self.traffic.passes_unframed(self.number, why)

    # For RequestSide and AnswerSide

    def to_client(self, data: bytes) -> None:
        """The service has sent it to the client itself."""

    def flight_over(self, flight: Flight) -> None:
        """The answer of that flight is whole; of HTTP/1 it is the first one."""
        self.flights.remove(flight)
        self.traffic.flights.pop(flight.number, None)
        if self.flights and not self.is_http2:
            self.flights[0].touched = self.traffic.gate.clock()

    def upgrade_decided(self, flight: Flight, *, is_stream: bool) -> None:
        """The answer to a request for an upgrade has come."""
        if is_stream:
            self.upgraded = flight
            self._requests.begin_stream()
        self._intake.upgrade_decided(is_stream=is_stream)

    def _begin_http2(self, upgraded: Flight | None = None) -> None:
        # Only services of HTTP/2 in clear need it, and its libraries take 50 ms to be imported.
        from relive.proxies.ingress._http2_streams import Http2Streams  # noqa: PLC0415

        self._http2 = Http2Streams(self.traffic, self, upgraded)

    def _upgrade_to_http2(self, flight: Flight) -> Callable[[bytes], None]:
        self._begin_http2(flight)
        self._intake.upgrade_decided(is_stream=True)
        assert self._http2 is not None
        return self._http2.service_data

    def http2_unreadable(self, reason: str) -> None:
        """From here on it is bytes; what was under way is given up."""
        self._http2 = None
        while self.flights:
            flight = self.flights[0]
            fields = {"how": "malformed"}
            self.traffic.writer.append(EventKind.REQUEST_ABANDONED, self.number, flight.number, fields=fields)
            self.flight_over(flight)
        self._intake.become_plain(reason)


def _stream(handed: HandedStream | None) -> ByteStream | None:
    if handed is None:
        return None
    made = ByteStream(handed.base)
    made.resume(handed.place, handed.end, handed.waiting)
    return made

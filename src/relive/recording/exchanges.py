"""Exchanges: requests and their answers, put together from the events of a recording.

Bodies are not held: an exchange knows where their bytes lie and reads them when asked. Lookups stream over the
segments that can matter; memory is bounded by what they return and by the requests open at one time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from relive.errors import RecordingCorrupt, RequestTruncated, RequestUnknown
from relive.recording.chunked import dechunk
from relive.recording.events import Event, EventKind
from relive.recording.grpc import GrpcStatus, grpc_status
from relive.recording.heads import Headers, parse_headers
from relive.recording.reader import Recording, RecordPosition

__all__ = ["Exchange", "ExchangeEnd", "Exchanges"]


class ExchangeEnd(StrEnum):
    """What became of a request."""

    ANSWERED = "answered"  # its answer is whole
    UPGRADED = "upgraded"  # answered, and the connection became a stream
    ABANDONED = "abandoned"  # the client went away first
    BROKEN = "broken"  # the service ended the connection first
    OPEN = "open"  # the recording ends before it does
    LOST = "lost"  # the recorder was killed, or off, when it ended


@dataclass(slots=True)
class Exchange:
    """One request and what became of it. Filled by ``Exchanges``; its users only read it.

    Attributes:
        local_port: the proxy's end of the service connection; None if there was none or that is no longer recorded.
        client: ``ADDR:PORT`` of the client, as far as recorded.
        started_seq, started_mono_ns, started_wall_ns: of the event before which the service had no byte of it.
        sent_seq: of the event that its last byte was sent; None if it never was.
        answer_seq, answer_mono_ns: of the final answer's head; None if none came.
        ended_seq, ended_mono_ns, ended_wall_ns: None if its end is not (yet) recorded. A request may have its answer
            before its last byte was sent: what is sent after the end is not part of the exchange.
        how: for ABANDONED and BROKEN: "closed", "reset", "malformed".
        reused: for BROKEN: answers the connection gave before.
        by_relive: the answer is the proxy's own, since the service could not be reached.
        interim_heads: raw heads of 1xx answers, of a 101 only where HTTP/2 began with it.
        log_offsets_before, log_offsets_after: size in bytes of each log file when it started and ended.
        request_cut, answer_cut: bytes missing at the end of the recorded body; 0 if it is whole.
        request_blake2b, answer_blake2b: hex hash of the whole raw body where something was cut, else None; None as well of an
            answer of whose end nothing is known but its length.
        answer_trailers: of HTTP/2: what came behind the body.
    """

    number: int
    connection: int
    request_head: bytes
    started_seq: int
    started_mono_ns: int
    started_wall_ns: int
    local_port: int | None = None
    client: str | None = None
    log_offsets_before: dict[str, int] = field(default_factory=dict)
    log_offsets_after: dict[str, int] = field(default_factory=dict)
    sent_seq: int | None = None
    request_cut: int = 0
    request_blake2b: str | None = None
    interim_heads: list[bytes] = field(default_factory=list)
    status: int | None = None
    answer_head: bytes = b""
    answer_seq: int | None = None
    answer_mono_ns: int | None = None
    answer_cut: int = 0
    answer_blake2b: str | None = None
    answer_trailers: list[tuple[str, str]] = field(default_factory=list)
    by_relive: bool = False
    ended: ExchangeEnd = ExchangeEnd.OPEN
    how: str | None = None
    reused: int = 0
    ended_seq: int | None = None
    ended_mono_ns: int | None = None
    ended_wall_ns: int | None = None
    _recording: Recording | None = field(default=None, repr=False, compare=False)
    _request_places: list[RecordPosition] = field(default_factory=list, repr=False, compare=False)
    _answer_places: list[RecordPosition] = field(default_factory=list, repr=False, compare=False)

    @property
    def method(self) -> str:
        """As in the request line, for example ``POST``."""
        return self.request_head.lstrip(b"\r\n").split(b" ", 1)[0].decode("latin-1")

    @property
    def target(self) -> str:
        """As in the request line: path and query, or what else the client sent."""
        parts = self.request_head.lstrip(b"\r\n").split(b"\n", 1)[0].split(b" ")
        return parts[1].decode("latin-1") if len(parts) > 1 else ""

    def is_handled_as(self, method: object) -> bool:
        """Whether the handler's event names it so: ASGI servers tell no method of a WebSocket, whose events have WEBSOCKET."""
        if method == "WEBSOCKET":
            return any(
                name == b"upgrade" and value.lower() == b"websocket" for name, value in self.request_headers
            )
        return method == self.method

    @property
    def request_headers(self) -> Headers:
        """(name in lower case, value), in order."""
        return parse_headers(self.request_head)

    @property
    def answer_headers(self) -> Headers:
        """(name in lower case, value), in order; empty if no answer came."""
        return parse_headers(self.answer_head)

    @property
    def grpc(self) -> GrpcStatus | None:
        """How a call of gRPC ended; None: it is none, or that was not said."""
        heads = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.answer_headers]
        return grpc_status(heads + self.answer_trailers)

    @property
    def is_http2(self) -> bool:
        """It had a stream of a connection of HTTP/2, from the beginning or after a 101."""
        line = self.request_head.split(b"\r\n", 1)[0]
        return line.endswith(b" HTTP/2") or any(b" 101 " in head[:13] for head in self.interim_heads)

    @property
    def seconds(self) -> float | None:
        """From handing it on to the end of its answer; None if it has no end."""
        return None if self.ended_mono_ns is None else (self.ended_mono_ns - self.started_mono_ns) / 1e9

    def is_open_at(self, seq: int) -> bool:
        """It started at or before ``seq``, and ended after it or not at all."""
        return self.started_seq <= seq and (self.ended_seq is None or self.ended_seq > seq)

    def raw_request_body(self) -> bytes:
        """The body as it was on the wire, as far as it was kept."""
        return self._read(self._request_places)

    def raw_answer_body(self) -> bytes:
        """The answer's body as it was on the wire, as far as it was kept."""
        return self._read(self._answer_places)

    def request_body(self) -> bytes:
        """The body without chunk framing, as far as it was kept; content codings are left on."""
        return _payload(self.raw_request_body(), self.request_headers)

    def answer_body(self) -> bytes:
        """The answer's body without chunk framing, as far as it was kept; content codings are left on."""
        return _payload(self.raw_answer_body(), self.answer_headers)

    def request_bytes(self) -> bytes:
        """The whole request as it was on the wire, to be sent again; one of HTTP/2 with a head that says so (``http2.parse_head``).

        Raises:
            RequestTruncated: the recorder did not keep all of it, or the client did not send all of it.
        """
        if self.request_cut or self.sent_seq is None:
            cause = "the client never sent all of it"
            remedy: str | None = None
            if self.request_cut:
                cause = f"{self.request_cut} bytes of its body were not kept"
                remedy = "Raise the proxy's --body-limit to keep larger bodies."
            raise RequestTruncated(f"request {self.number} cannot be sent again", cause=cause, remedy=remedy)
        head = self.request_head
        if self.is_http2:  # after an upgrade it has the head of HTTP/1
            line, _, rest = head.partition(b"\r\n")
            head = line.rsplit(b" ", 1)[0] + b" HTTP/2\r\n" + rest
        return head + self.raw_request_body()

    def request_body_after(self, seq: int) -> bytes:
        """Raw body bytes that were handed on to the service after an event, as far as they were kept."""
        if self._recording is None:
            return b""
        events = (self._recording.event_at(place) for place in self._request_places)
        return b"".join([event.data for event in events if event.seq > seq])

    def _read(self, places: list[RecordPosition]) -> bytes:
        if self._recording is None:
            return b""
        return b"".join([self._recording.event_at(place).data for place in places])


class Exchanges:
    """Lookups over a recording. Each looks at the files as they are now.

    All may raise RecordingCorrupt where a segment they have to read is damaged.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def all(self, *, after: int = 0) -> Iterator[Exchange]:
        """Those that started after seq ``after``, each given out when its end is read; the open ones come last."""
        return self._walk(after, lambda _event: True)

    def by_number(self, number: int) -> Exchange:
        """The exchange of a request.

        Raises:
            RequestUnknown: no request of that number was recorded, or retention has dropped it.
        """
        for exchange in self._walk(self._seq_before_request(number), lambda event: event.request == number):
            return exchange
        raise RequestUnknown(
            f"request {number} is not in the recording",
            cause=f"{self.recording.directory} holds no start of it",
            remedy="It may never have been handed on to the service, or retention has dropped it.",
        )

    def begun_in(self, after: int, until: int) -> list[Exchange]:
        """Those that started at ``after`` < seq <= ``until``, in that order, each followed to its end beyond that."""
        found = self._walk(after, lambda event: event.seq <= until, last_start=until)
        return sorted(found, key=lambda exchange: exchange.started_seq)

    def open_at(self, seq: int) -> list[Exchange]:
        """Those that started at or before ``seq`` and ended after it or not at all, in the order they started.

        Reads the recording from its beginning, since a request may be open for any time.
        """
        return self.open_at_any([seq])

    def open_at_any(self, seqs: Collection[int]) -> list[Exchange]:
        """As ``open_at``, of several places at once: those that were open at one of them. Reads the recording once."""
        places = sorted(seqs)
        if not places:
            return []
        found = self._walk(0, lambda event: event.seq <= places[-1], last_start=places[-1])
        still_open = (one for one in found if one.is_open_at(places[bisect_left(places, one.started_seq)]))
        return sorted(still_open, key=lambda exchange: exchange.started_seq)

    def gaps_in(self, after: int, until: int) -> int:
        """Places at ``after`` < seq <= ``until`` at which something that crossed is not recorded."""
        return sum(
            _is_gap(event) or _begins_beside(event)
            for event in self.recording.events(after=after, until=until)
        )

    def _seq_before_request(self, number: int) -> int:
        seq = 0
        for path in self.recording.segments():
            try:
                if self.recording.last_request_before(path) >= number:
                    break
            except (RecordingCorrupt, FileNotFoundError):
                continue
            seq = int(path.stem) - 1
        return seq

    def _walk(
        self, after: int, wants: Callable[[Event], bool], *, last_start: int | None = None
    ) -> Iterator[Exchange]:
        assembler = _Assembler(self.recording, wants)
        for event, place in self.recording.events_with_places(after=after):
            if last_start is not None and event.seq > last_start and not assembler.open:
                return
            yield from assembler.feed(event, place)
        yield from assembler.rest()


class _Assembler:
    """Makes exchanges of events, in one pass. ``wants`` says of a request-started event whether to follow it."""

    def __init__(self, recording: Recording, wants: Callable[[Event], bool]) -> None:
        self._recording = recording
        self._wants = wants
        self._gap_at = 0  # seq of the last note that events were lost
        self._kept: dict[int, list[int]] = {}  # bytes recorded so far of the bodies of request and answer
        self.open: dict[int, Exchange] = {}

    def feed(self, event: Event, place: RecordPosition) -> list[Exchange]:
        """Take in the next event and return the exchanges that ended with it."""
        kind = event.kind
        if kind is EventKind.REQUEST_STARTED:
            if self._wants(event):
                self._start(event)
        elif kind is EventKind.RECORDER_STARTED:
            return self._lose(list(self.open.values()))
        elif kind is EventKind.CONNECTION_CLOSED:
            return self._lose([e for e in self.open.values() if e.connection == event.connection])
        elif kind is EventKind.NOTE:
            if _is_gap(event) and not event.fields.get("stood"):  # no request's end is among what was missed
                self._gap_at = event.seq
        elif (exchange := self.open.get(event.request)) is not None:
            self._add(exchange, event, place)
            if exchange.ended is not ExchangeEnd.OPEN:
                return [self._finish(exchange, event)]
        return []

    def rest(self) -> list[Exchange]:
        """Those that have not ended; LOST where their end may be among the events that were."""
        for exchange in self.open.values():
            if exchange.started_seq < self._gap_at:
                exchange.ended = ExchangeEnd.LOST
        return list(self.open.values())

    def _start(self, event: Event) -> None:
        fields = event.fields
        self.open[event.request] = Exchange(
            number=event.request,
            connection=event.connection,
            request_head=event.data,
            started_seq=event.seq,
            started_mono_ns=event.mono_ns,
            started_wall_ns=event.wall_ns,
            local_port=fields.get("local_port"),
            client=fields.get("client"),
            log_offsets_before=fields.get("log_offsets", {}),
            _recording=self._recording,
        )
        self._kept[event.request] = [0, 0]

    def _add(self, exchange: Exchange, event: Event, place: RecordPosition) -> None:
        fields, kept = event.fields, self._kept[exchange.number]
        match event.kind:
            case EventKind.REQUEST_BODY:
                exchange._request_places.append(place)
                kept[0] += len(event.data)
            case EventKind.REQUEST_ENDED:
                exchange.sent_seq = event.seq
                exchange.request_cut = fields.get("bytes", 0) - kept[0]
                exchange.request_blake2b = fields.get("blake2b")
            case EventKind.INTERIM_ANSWER:
                exchange.interim_heads.append(event.data)
            case EventKind.ANSWER_STARTED:
                exchange.answer_head, exchange.status = event.data, fields.get("status")
                exchange.answer_seq, exchange.answer_mono_ns = event.seq, event.mono_ns
                exchange.by_relive = fields.get("by") == "relive"
            case EventKind.ANSWER_BODY:
                exchange._answer_places.append(place)
                kept[1] += len(event.data)
            case EventKind.ANSWER_ENDED:
                exchange.answer_cut = fields.get("bytes", 0) - kept[1]
                exchange.answer_blake2b = fields.get("blake2b")
                exchange.log_offsets_after = fields.get("log_offsets", {})
                exchange.answer_trailers = [(name, value) for name, value in fields.get("trailers", ())]
                exchange.ended = ExchangeEnd.UPGRADED if fields.get("upgraded") else ExchangeEnd.ANSWERED
            case EventKind.REQUEST_ABANDONED:
                exchange.ended, exchange.how = ExchangeEnd.ABANDONED, fields.get("how")
            case EventKind.ANSWER_BROKEN:
                exchange.ended, exchange.how = ExchangeEnd.BROKEN, fields.get("how")
                exchange.reused = fields.get("reused", 0)
            case _:
                pass

    def _finish(self, exchange: Exchange, event: Event) -> Exchange:
        exchange.ended_seq, exchange.ended_mono_ns, exchange.ended_wall_ns = (
            event.seq,
            event.mono_ns,
            event.wall_ns,
        )
        del self.open[exchange.number], self._kept[exchange.number]
        return exchange

    def _lose(self, exchanges: list[Exchange]) -> list[Exchange]:
        for exchange in exchanges:
            exchange.ended = ExchangeEnd.LOST
            del self.open[exchange.number], self._kept[exchange.number]
        return exchanges


def _is_gap(event: Event) -> bool:
    return event.kind is EventKind.NOTE and event.fields.get("about") in ("capture", "disk")


def _begins_beside(event: Event) -> bool:
    """Another recorder began: what came while there was none went to the service all the same."""
    return event.kind is EventKind.RECORDER_STARTED and event.fields.get("capture") == "beside"


def _payload(raw: bytes, headers: Headers) -> bytes:
    is_chunked = any(name == b"transfer-encoding" and b"chunked" in value.lower() for name, value in headers)
    return dechunk(raw) if is_chunked else raw

"""Clients' connections in a recording: when they ended, and what was said on those that carried something other than HTTP/1, from
their beginning or from an upgrade (WebSocket) on.

Of the latter the recording holds the bytes of both sides in the order in which they were seen. A *turn* is what a client sent in
one piece. Whatever a service had said before a turn, on any connection, the client of that turn may have known; so turns, and what
is *said*, have one common order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording, RecordPosition

__all__ = ["Closing", "Connections", "Conversation", "Message", "Said", "Turn", "TurnKind", "connections_in"]


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of a connection.

    Attributes:
        local_port: of the proxy's end towards the service; None where it had refused.
        seq, mono_ns: of the event.
        is_http: it carried HTTP/1, whose requests are in the recording.
    """

    connection: int
    local_port: int | None
    seq: int
    mono_ns: int
    is_http: bool = True


class TurnKind(StrEnum):
    """What a client did."""

    OPENED = "opened"  # or had its upgrade granted; a service may speak first then
    SENT = "sent"
    ENDED = "ended"  # it sends no more, and may go on reading
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing that a client did on a connection.

    Attributes:
        place: of the event whose data were sent; of one that opened, of the first that was heard on it.
        after: so many of ``Connections.said`` came before it.
        seq: of that event.
        cut: bytes that followed and were not kept, so that nothing behind can be sent again as it was.
    """

    connection: int
    kind: TurnKind
    mono_ns: int
    place: RecordPosition
    after: int
    seq: int
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Said:
    """One thing that the service said on a connection.

    Attributes:
        mono_ns: when it was seen.
        total: bytes of it on that connection since the beginning of what is read, this included.
        seconds: since the last turn on that connection.
        place: of the event.
        cut: bytes that followed its data and were not kept.
    """

    connection: int
    mono_ns: int
    total: int
    seconds: float
    place: RecordPosition
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said on a connection that was not HTTP/1.

    Attributes:
        local_port: as of ``Closing``.
        request: that asked for the upgrade after which it was said; None: of a connection without requests, or it was before the
            beginning of what is read.
        from_middle: its beginning is not recorded, so it can be gone on with, and not be begun.
    """

    connection: int
    local_port: int | None
    request: int | None = None
    from_middle: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """What a client sent before the service said something to it again, and what it said then.

    Attributes:
        number: of its first event; in the recording of one start of a service nothing else has it.
        turns: what was sent, at least one; said: the answer, perhaps nothing.
    """

    number: int
    connection: int
    turns: list[Turn]
    said: list[Said]


@dataclass(slots=True)
class Connections:
    """What ``connections_in`` has found.

    Attributes:
        closings: in the order in which they were seen, of all connections.
        conversations: by their numbers; of some there may be neither a turn nor anything said.
        turns, said: of all conversations, each in the order in which they were seen.
    """

    recording: Recording
    closings: list[Closing] = field(default_factory=list)
    conversations: dict[int, Conversation] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)

    def bytes_of(self, one: Turn | Said) -> bytes:
        """What was sent or said, as far as it was kept; raises RecordingCorrupt."""
        return self.recording.event_at(one.place).data

    def of_connection(self, number: int) -> Connections:
        """The same with only one conversation."""
        places = [at for at, one in enumerate(self.said) if one.connection == number]
        turns = [
            replace(one, after=sum(place < one.after for place in places))
            for one in self.turns
            if one.connection == number
        ]
        return replace(
            self,
            closings=[one for one in self.closings if one.connection == number],
            conversations={number: self.conversations[number]},
            turns=turns,
            said=[self.said[at] for at in places],
        )

    def messages(self) -> list[Message]:
        """All of them, in the order in which they began."""
        found: list[Message] = []
        latest: dict[int, Message] = {}  # by connection
        heard = 0

        def hear(until: int) -> None:
            for one in self.said[heard:until]:
                if one.connection in latest:
                    latest[one.connection].said.append(one)

        for turn in self.turns:
            if turn.kind is not TurnKind.SENT:
                continue
            hear(turn.after)
            heard = max(heard, turn.after)
            message = latest.get(turn.connection)
            if message is not None and not message.said:
                message.turns.append(turn)
                continue
            latest[turn.connection] = Message(turn.seq, turn.connection, [turn], [])
            found.append(latest[turn.connection])
        hear(len(self.said))
        return found

    def without(self, numbers: Collection[int]) -> Connections:
        """The same without some messages, and without what the service answered to them."""
        gone = [one for one in self.messages() if one.number in numbers]
        unsent = {id(turn) for one in gone for turn in one.turns}
        unheard = {id(said) for one in gone for said in one.said}
        kept: list[Said] = []
        before = [0]  # of ``kept``, by places in ``said``
        less: dict[int, int] = {}  # bytes, by connection
        heard: dict[int, int] = {}
        for one in self.said:
            size = one.total - heard.get(one.connection, 0)
            heard[one.connection] = one.total
            if id(one) in unheard:
                less[one.connection] = less.get(one.connection, 0) + size
            else:
                kept.append(replace(one, total=one.total - less.get(one.connection, 0)))
            before.append(len(kept))
        turns = [replace(one, after=before[one.after]) for one in self.turns if id(one) not in unsent]
        return replace(self, turns=turns, said=kept)

    def between(self, since_ns: int, until_ns: int) -> Connections:
        """The same with only the ends, the turns, and what was said, after one monotonic time [ns] and up to another."""
        closings = [one for one in self.closings if since_ns < one.mono_ns <= until_ns]
        turns = [one for one in self.turns if since_ns < one.mono_ns <= until_ns]
        said = [one for one in self.said if since_ns < one.mono_ns <= until_ns]
        dropped = [one for one in self.said if one.mono_ns <= since_ns]
        if dropped:
            totals = {one.connection: one.total for one in dropped}
            said = [replace(one, total=one.total - totals.get(one.connection, 0)) for one in said]
            turns = [replace(one, after=max(0, one.after - len(dropped))) for one in turns]
        return replace(self, closings=closings, turns=turns, said=said)


_KINDS = {EventKind.STREAM_TO_SERVICE, EventKind.STREAM_TO_CLIENT}


def connections_in(recording: Recording, after: int, until: int, *, settled: int = 0) -> Connections:
    """What became of connections at ``after`` < seq <= ``until``. Reads the recording from its beginning.

    Args:
        settled: what the service said up to that event it had said by ``after``, though it was seen later.

    Raises:
        RecordingCorrupt: a segment is damaged.
    """
    reading = _Reading(recording, after, max(after, settled))
    for event, place in _until(recording, until):
        reading.take(event, place)
    return reading.found


def _until(recording: Recording, until: int) -> Iterator[tuple[Event, RecordPosition]]:
    for event, place in recording.events_with_places():
        if event.seq > until:
            return
        yield event, place


class _Reading:
    """One pass over the events."""

    def __init__(self, recording: Recording, after: int, settled: int) -> None:
        self.found = Connections(recording)
        self._after, self._settled = after, settled
        self._ports: dict[int, int | None] = {}
        self._with_requests: set[int] = set()
        self._from_middle: set[int] = set()
        self._begun: set[int] = set()  # requests, in what is read
        self._opened: dict[int, int] = {}  # monotonic [ns], by connection, in what is read
        self._totals: dict[int, int] = {}
        self._latest: dict[int, int] = {}  # monotonic [ns] of the last turn, by connection

    def take(self, event: Event, place: RecordPosition) -> None:
        """The next event."""
        kind = event.kind
        if kind in (EventKind.CONNECTION_OPENED, EventKind.REQUEST_STARTED):
            self._ports[event.connection] = event.fields.get("local_port")
            if event.fields.get("from_middle"):
                self._from_middle.add(event.connection)
            if event.seq > self._after:
                self._opened.setdefault(event.connection, event.mono_ns)
            if kind is EventKind.REQUEST_STARTED:
                self._with_requests.add(event.connection)
                if event.seq > self._after:
                    self._begun.add(event.request)
        elif kind is EventKind.CONNECTION_CLOSED:
            self._close(event, place)
        elif kind in _KINDS and (event.request or event.connection not in self._with_requests):
            self._hear(event, place)

    def _hear(self, event: Event, place: RecordPosition) -> None:
        number = event.connection
        if number not in self.found.conversations:
            self._begin(event, place)
        if event.kind is EventKind.STREAM_TO_SERVICE:
            kind = TurnKind.ENDED if event.fields.get("ended") else TurnKind.SENT
            self._turn(event, place, kind)
        elif event.seq > self._settled:
            cut = event.fields.get("cut", 0)
            total = self._totals.get(number, 0) + len(event.data) + cut
            self._totals[number] = total
            seconds = (event.mono_ns - self._latest.get(number, event.mono_ns)) / 1e9
            self.found.said.append(Said(number, event.mono_ns, total, max(0.0, seconds), place, cut))

    def _begin(self, event: Event, place: RecordPosition) -> None:
        number = event.connection
        request = event.request if event.request in self._begun else None
        from_middle = number in self._from_middle
        self.found.conversations[number] = Conversation(
            number, self._ports.get(number), request, from_middle=from_middle
        )
        opened_ns = event.mono_ns if request is not None else self._opened.get(number)
        if opened_ns is not None:
            self.found.turns.append(
                Turn(number, TurnKind.OPENED, opened_ns, place, len(self.found.said), event.seq)
            )

    def _turn(self, event: Event, place: RecordPosition, kind: TurnKind) -> None:
        if event.seq <= self._after:
            return
        self._latest[event.connection] = event.mono_ns
        after, cut = len(self.found.said), event.fields.get("cut", 0)
        self.found.turns.append(Turn(event.connection, kind, event.mono_ns, place, after, event.seq, cut))

    def _close(self, event: Event, place: RecordPosition) -> None:
        number = event.connection
        port = self._ports.pop(number, None)
        self._opened.pop(number, None)
        self._with_requests.discard(number)
        self._from_middle.discard(number)
        if event.seq <= self._after:
            self.found.conversations.pop(number, None)
        elif not event.fields.get("lost"):
            is_http = not event.fields.get("unframed")
            self.found.closings.append(Closing(number, port, event.seq, event.mono_ns, is_http))
            if number in self.found.conversations:
                self._turn(event, place, TurnKind.CLOSED)

"""Connections that a service opened itself, put together from the events of a recording.

Terms: a *dialogue* is one such connection with all that was said on it; *up* is from the service, *down* is to it; a *place* in
a direction is the number of bytes before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from relive.errors import RecordingCorrupt
from relive.recording.events import Event, EventKind

__all__ = ["Dialogue", "DialoguePiece", "DialogueReader", "DirectionEnd", "Tls", "Way", "read_dialogues"]

_WRAP = 1 << 32  # TCP sequence numbers


class Way(StrEnum):
    """A direction."""

    UP = "up"
    DOWN = "down"


class Tls(StrEnum):
    """What became of a dialogue that is encrypted."""

    OPENED = "opened"  # what is kept is what was inside
    CLOSED = "closed"  # what is kept is what was on the wire


@dataclass(frozen=True, slots=True)
class DialoguePiece:
    """Bytes as they came together.

    Attributes:
        at: its place.
        seq: of its event.
    """

    way: Way
    at: int
    data: bytes
    mono_ns: int
    seq: int


@dataclass(frozen=True, slots=True)
class DirectionEnd:
    """The end of a direction.

    Attributes:
        how: "closed", "reset", or "lost" when the recorder went away before.
        cut: bytes at its end that were not kept.
    """

    how: str
    total: int
    cut: int
    mono_ns: int
    seq: int


@dataclass(slots=True)
class Dialogue:
    """One connection that the service opened, or tried to.

    Attributes:
        number: of the connection in the recording.
        to: where, as the service named it; origin: the service's own end. (address, port)
        error: name of an errno when there was no connection.
        up_base, down_base: TCP sequence numbers of the first bytes, None where not known.
        pieces: in the order in which they came, both ways.
        endings: by direction; one that has not ended is not in it.
    """

    number: int
    to: tuple[str, int]
    origin: tuple[str, int]
    opened_mono_ns: int
    opened_seq: int
    connect_ns: int = 0
    error: str | None = None
    up_base: int | None = None
    down_base: int | None = None
    tls: Tls | None = None
    pieces: list[DialoguePiece] = field(default_factory=list)
    endings: dict[Way, DirectionEnd] = field(default_factory=dict)

    def of(self, way: Way) -> list[DialoguePiece]:
        """The pieces of one direction, in order of their places."""
        return [piece for piece in self.pieces if piece.way is way]

    def text(self, way: Way, begin: int = 0, end: int | None = None) -> bytes:
        """Bytes of a direction between two places, as far as they were kept."""
        parts = []
        for piece in self.of(way):
            low = max(begin - piece.at, 0)
            high = len(piece.data) if end is None else min(end - piece.at, len(piece.data))
            if low < high:
                parts.append(piece.data[low:high])
        return b"".join(parts)

    def place(self, way: Way, sequence: int) -> int | None:
        """The place to which a TCP sequence number belongs; None where the base is not known.

        Sequence numbers come round every 4 GiB: it is the place nearest to all that was said in that direction.
        """
        base = self.up_base if way is Way.UP else self.down_base
        if base is None:
            return None
        pieces = self.of(way)
        said = pieces[-1].at + len(pieces[-1].data) if pieces else 0
        if way in self.endings:
            said = max(said, self.endings[way].total)
        offset = (sequence - base) % _WRAP
        rounds = max(0, round((said - offset) / _WRAP))
        return offset + rounds * _WRAP


def read_dialogues(events: Iterable[Event]) -> list[Dialogue]:
    """All dialogues of some events, in the order in which they were opened; those that began before the events are left out.

    Raises:
        RecordingCorrupt: an event does not have the fields it must have.
    """
    reader = DialogueReader()
    for event in events:
        reader.add(event)
    return list(reader.dialogues.values())


class DialogueReader:
    """As ``read_dialogues``, event by event, for who does not want to hold all of them.

    Attributes:
        dialogues: by number, in the order in which they were opened; what is taken out is not gone on with.
    """

    def __init__(self) -> None:
        self.dialogues: dict[int, Dialogue] = {}

    def add(self, event: Event) -> None:
        """Go on; raises RecordingCorrupt as ``read_dialogues`` does."""
        try:
            _add(self.dialogues, event)
        except (KeyError, TypeError, ValueError) as error:
            raise RecordingCorrupt(
                f"event {event.seq} of the recording is damaged",
                cause=f"a {event.kind.value} without its fields: {type(error).__name__}: {error}",
                remedy="what came before it can still be read; replay an earlier request",
            ) from error


def _add(found: dict[int, Dialogue], event: Event) -> None:
    fields = event.fields
    if event.kind is EventKind.DIALOGUE_OPENED:
        known = found.get(event.connection)
        opened = _opened(event)
        if known is None:
            found[event.connection] = opened
        else:  # said again, in a later segment or with what has become known meanwhile
            known.tls, known.up_base, known.down_base = opened.tls, opened.up_base, opened.down_base
        return
    dialogue = found.get(event.connection)
    if dialogue is None:
        return
    if event.kind in (EventKind.DIALOGUE_UP, EventKind.DIALOGUE_DOWN):
        way = Way.UP if event.kind is EventKind.DIALOGUE_UP else Way.DOWN
        _piece(dialogue, DialoguePiece(way, int(fields["at"]), event.data, event.mono_ns, event.seq))
    elif event.kind is EventKind.DIALOGUE_ENDED:
        dialogue.endings[Way(fields["way"])] = DirectionEnd(
            str(fields["how"]), int(fields["bytes"]), int(fields.get("cut", 0)), event.mono_ns, event.seq
        )


def _piece(dialogue: Dialogue, piece: DialoguePiece) -> None:
    """A recorder that was killed may have recorded bytes that it had not sent: the next one records them again."""
    last = next((one for one in reversed(dialogue.pieces) if one.way is piece.way), None)
    known = 0 if last is None else last.at + len(last.data) - piece.at
    if known > 0:
        piece = replace(piece, at=piece.at + known, data=piece.data[known:])
    if piece.data or known <= 0:
        dialogue.pieces.append(piece)


def _opened(event: Event) -> Dialogue:
    fields = event.fields
    error, tls = fields.get("error"), fields.get("tls")
    return Dialogue(
        number=event.connection,
        to=_address(fields["to"]),
        origin=_address(fields["origin"]),
        opened_mono_ns=event.mono_ns,
        opened_seq=event.seq,
        connect_ns=int(fields.get("connect_ns", 0)),
        error=str(error) if error is not None else None,
        up_base=_number(fields.get("up_base")),
        down_base=_number(fields.get("down_base")),
        tls=Tls(tls) if tls is not None else None,
    )


def _address(value: Any) -> tuple[str, int]:
    host, port = value
    return str(host), int(port)


def _number(value: Any) -> int | None:
    return int(value) if value is not None else None

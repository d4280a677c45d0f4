"""What a recording has of the dialogues that go on, for the next recorder beside the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from relive.errors import RecordingCorrupt
from relive.proxies.egress.tapped import Recorded
from relive.recording.dialogues import Way
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording

__all__ = ["read_unfinished"]

_AGAIN = 1024  # so many events ago a recorder can have recorded what it was killed before it had it out of the ring
_SEGMENTS = 2  # each tells anew of every dialogue of which it has anything
_WAYS = {EventKind.DIALOGUE_UP: Way.UP, EventKind.DIALOGUE_DOWN: Way.DOWN}


def read_unfinished(directory: Path) -> list[Recorded]:
    """Those on which more may be said, or what was said may come again, by the last segments; of a damaged one as far as it goes.

    Of several of one connection the last one is the last.
    """
    found = _Unfinished()
    segments = Recording(directory).segments()[-_SEGMENTS:]
    if segments:
        try:
            for event in Recording(directory).events(after=int(segments[0].stem) - 1):
                found.add(event)
        except RecordingCorrupt:
            pass  # the writer says so
    return found.all()


@dataclass(slots=True)
class _Dialogue:
    bases: tuple[int, int]
    connect_ns: int
    is_encrypted: bool
    places: dict[Way, int] = field(default_factory=lambda: dict.fromkeys(Way, 0))
    ended: set[Way] = field(default_factory=set)
    ended_seq: int = 0


class _Unfinished:
    def __init__(self) -> None:
        self._known: dict[int, _Dialogue] = {}
        self._last_seq = 0

    def add(self, event: Event) -> None:
        self._last_seq = event.seq
        if event.kind is EventKind.DIALOGUE_OPENED:
            self._open(event)
        known = self._known.get(event.connection)
        if known is None:
            return
        if event.kind in _WAYS:
            known.places[_WAYS[event.kind]] = event.fields["at"] + len(event.data)
        elif event.kind is EventKind.DIALOGUE_ENDED:
            known.ended.add(Way(event.fields["way"]))
            known.ended_seq = event.seq
            if event.fields["how"] == "lost":  # it goes on as another one
                del self._known[event.connection]

    def _open(self, event: Event) -> None:
        fields = event.fields
        if "up_base" not in fields:  # nothing came of it
            return
        known = self._known.setdefault(
            event.connection,
            _Dialogue((fields["up_base"], fields["down_base"]), fields["connect_ns"], is_encrypted=False),
        )
        known.is_encrypted = "tls" in fields
        for way in Way:
            known.places[way] = max(known.places[way], fields.get(f"{way.value}_at", 0))

    def all(self) -> list[Recorded]:
        return [
            Recorded(
                number=number,
                connect_ns=one.connect_ns,
                places=(one.places[Way.UP], one.places[Way.DOWN]),
                bases=one.bases,
                has_ended=(Way.UP in one.ended, Way.DOWN in one.ended),
                is_encrypted=one.is_encrypted,
            )
            for number, one in self._known.items()
            if len(one.ended) < len(Way) or one.ended_seq > self._last_seq - _AGAIN
        ]

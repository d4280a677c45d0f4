"""What a life said to others around a commit, read from the recording of its egress.

Dialogues that had ended before the commit are kept as far as they tell how one begins to talk to that destination: their first
bytes, of the last few. All others are kept whole.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

from relive.errors import RecordingCorrupt
from relive.recording.dialogues import Dialogue, DialogueReader
from relive.recording.events import Event, EventKind
from relive.recording.reader import Recording

__all__ = ["EgressWindow", "read_egress"]

_MOST_BYTES = 256 << 20
_AFTER_NS = 2_000_000_000
_OPENING = 1 << 16  # [bytes] that are kept of a dialogue that had ended before
_OPENINGS = 4  # of each destination
_KINDS = frozenset(
    {
        *(EventKind.DIALOGUE_OPENED, EventKind.DIALOGUE_UP, EventKind.DIALOGUE_DOWN),
        *(EventKind.DIALOGUE_ENDED, EventKind.NAME_LOOKUP),
    }
)


@dataclass(frozen=True, slots=True)
class EgressWindow:
    """What was recorded of it.

    Attributes:
        dialogues: in the order in which they were opened; lookups: name-lookup events.
        taken_ns: monotonic time of the commit.
        left_out: events that were too many.
        damage: why the recording cannot be read to its end.
    """

    taken_ns: int
    dialogues: list[Dialogue] = field(default_factory=list)
    lookups: list[Event] = field(default_factory=list)
    left_out: int = 0
    damage: str | None = None


def read_egress(directory: Path, taken_ns: int, until_ns: int | None = None) -> EgressWindow | None:
    """Read it up to a moment and a little beyond, or to its end; None where nobody recorded the egress.

    At most 256 MiB are kept. What comes after those is left out altogether, so that no dialogue has a hole.
    """
    recording = Recording(directory)
    if not recording.segments():
        return None
    end = until_ns + _AFTER_NS if until_ns is not None else None
    collected = _KeptEvents(taken_ns)
    damage: str | None = None
    try:
        for event in recording.events():
            if end is not None and event.mono_ns > end:
                break
            if event.kind in _KINDS:
                collected.add(event)
    except RecordingCorrupt as error:
        damage = str(error)
    return EgressWindow(taken_ns, collected.dialogues(), collected.lookups, collected.left_out, damage)


class _KeptEvents:
    """What is kept of the events."""

    def __init__(self, taken_ns: int) -> None:
        self.lookups: list[Event] = []
        self.left_out = 0
        self._taken_ns = taken_ns
        self._reader = DialogueReader()
        self._over: dict[tuple[str, int], deque[int]] = defaultdict(deque)
        self._size = 0

    def dialogues(self) -> list[Dialogue]:
        return list(self._reader.dialogues.values())

    def add(self, event: Event) -> None:
        if self.left_out or self._size > _MOST_BYTES:
            self.left_out += 1
            return
        self._size += len(event.data)
        if event.kind is EventKind.NAME_LOOKUP:
            self.lookups.append(event)
            return
        self._reader.add(event)
        if event.kind is EventKind.DIALOGUE_ENDED and event.mono_ns < self._taken_ns:
            self._forget_older(event.connection)

    def _forget_older(self, number: int) -> None:
        """A dialogue ended before the commit; of those to the same destination only the last few are of any use."""
        dialogue = self._reader.dialogues.get(number)
        if dialogue is None or len(dialogue.endings) < 2:
            return
        over = self._over[dialogue.to]
        over.append(number)
        self._size -= _cut_to_opening(dialogue)
        if len(over) > _OPENINGS:
            gone = self._reader.dialogues.pop(over.popleft())
            self._size -= sum(len(piece.data) for piece in gone.pieces)


def _cut_to_opening(dialogue: Dialogue) -> int:
    """Keep the first bytes; returns how many went."""
    kept = []
    room, gone = _OPENING, 0
    for piece in dialogue.pieces:
        if room > 0:
            kept.append(piece)
            room -= len(piece.data)
        else:
            gone += len(piece.data)
    dialogue.pieces[:] = kept
    return gone

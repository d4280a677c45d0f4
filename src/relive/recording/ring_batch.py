"""What several rings hold, as the records of one recording: in the order of time, packed where nobody looks into them.

Most events of a busy service are only handed on, from a ring to the recording: C packs their records (``packed_batch``) where
``ring_library.so`` is there, and by the writer, one event after the other, where it is not. Both write the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from relive.errors import RecordingCorrupt
from relive.recording.events import Event
from relive.recording.rings import parse

__all__ = ["DecodedBatch", "RingBatch", "RingRecords"]


@dataclass(frozen=True, slots=True)
class RingRecords:
    """What was read from one ring.

    Attributes:
        path: of the ring.
        pid: of its process, in the capsule.
        raw: whole records, one behind the other (``rings``).
        is_beginning: calls, and readings outside of requests, are wanted as events.
    """

    path: Path
    pid: int
    raw: bytes
    is_beginning: bool


class RingBatch(Protocol):
    """The records of some rings, numbered from 0 in the order of CLOCK_MONOTONIC, which is one for all of a host.

    Attributes:
        count: how many there are.
        refused: for each ring (its index) that holds something else than events, why. None of its records counts.
    """

    count: int
    refused: dict[int, RecordingCorrupt]

    def packable(self, first: int) -> int:
        """How many records from the ``first`` on, without a gap, nobody needs as events."""

    def pack(self, first: int, count: int, seq: int) -> bytes:
        """Those as records of a recording (``layout``), with their pids as ``append`` would write them; the first has that seq."""

    def event(self, number: int) -> tuple[int, Event]:
        """One record as pid and event."""

    def close(self) -> None:
        """Let its memory go."""


class DecodedBatch:
    """All of them as events: nothing is packed."""

    def __init__(self, rings: Sequence[RingRecords]) -> None:
        self.refused: dict[int, RecordingCorrupt] = {}
        events: list[tuple[int, Event]] = []
        for index, ring in enumerate(rings):
            try:
                events += [(ring.pid, event) for event in parse(ring.path, ring.raw)]
            except RecordingCorrupt as error:
                self.refused[index] = error
        self._events = sorted(events, key=_time_of)
        self.count = len(events)

    def packable(self, first: int) -> int:  # noqa: ARG002 - of the protocol
        return 0

    def pack(self, first: int, count: int, seq: int) -> bytes:
        raise NotImplementedError("nothing of it is packable")

    def event(self, number: int) -> tuple[int, Event]:
        return self._events[number]

    def close(self) -> None:
        pass


def _time_of(pair: tuple[int, Event]) -> int:
    return pair[1].mono_ns

"""Dialogues written down by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from relive.recording.dialogues import Dialogue, DialoguePiece, DirectionEnd, Way

__all__ = ["dialogue"]

_MS = 1_000_000
_numbers = itertools.count(1)


def dialogue(
    pieces: Iterable[tuple[Way, bytes]],
    *,
    to: tuple[str, int] = ("10.0.0.7", 80),
    closed: Way | None = None,
    reset: Way | None = None,
    number: int | None = None,
) -> Dialogue:
    """A connection on which this was said, 10 ms between one piece and the next; the way that ended first, if one did."""
    found = Dialogue(number or next(_numbers), to, ("10.0.0.9", 40_000), 0, 1)
    places = {Way.UP: 0, Way.DOWN: 0}
    for at, (way, data) in enumerate(pieces, 1):
        found.pieces.append(DialoguePiece(way, places[way], data, at * 10 * _MS, at + 1))
        places[way] += len(data)
    first = closed or reset
    if first is not None:
        last = (len(found.pieces) + 1) * 10 * _MS
        how = "reset" if reset is not None else "closed"
        for late, way in enumerate(sorted(Way, key=lambda one: one is not first)):
            found.endings[way] = DirectionEnd(how, places[way], 0, last + late * _MS, 10_000 + late)
    return found

"""Where two runs part, as a value."""

from __future__ import annotations

from enum import StrEnum

from relive.model.outcome import InsideEvent
from relive.model.value import Value

__all__ = ["Divergence", "DivergenceClass"]


class DivergenceClass(StrEnum):
    """What the first event that differs says of two runs."""

    TIME = "time"  # the same was done, and only a time differs in it
    PAYLOAD = "payload"  # the same was done with other values
    WAY = "way"  # something else was done


class Divergence(Value):
    """An event of one request that differs between two runs.

    Attributes:
        place: of the event, from 1, in the first run; behind its end where only the second has it.
        before, after: the event in each run; None: it has none there.
        path: of the first part that differs, where both did the same.
        old, new: what stands there, as texts; None: nothing does.
        words: the same in a sentence.
    """

    kind: DivergenceClass
    place: int
    before: InsideEvent | None
    after: InsideEvent | None
    path: str | None = None
    old: str | None = None
    new: str | None = None
    words: str

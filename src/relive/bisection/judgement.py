"""What a probe says of a commit."""

from __future__ import annotations

from enum import StrEnum

from relive.model.value import Value

__all__ = ["Judged", "Judgement"]


class Judgement(StrEnum):
    """Of one probe. Only good and bad are evidence: a probe that crashed or hung says nothing of the commit."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"
    FAILED = "failed"


class Judged(Value):
    """A judgement, and what was seen, in words; ``is_final``: no further probe makes sense."""

    judgement: Judgement
    seen: str
    is_final: bool = False

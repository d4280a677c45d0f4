"""What came of an expression that a process of a commit evaluated, as values."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from relive.model.value import Value

__all__ = ["OF_THE_SERVICE", "EvalOutcome", "Evaluated", "ValuePart", "death_told"]


class EvalOutcome(StrEnum):
    """How an expression ended: with a value, an exception, not within its time, or with the death of its process."""

    VALUE = "value"
    RAISED = "raised"
    HUNG = "hung"
    DIED = "died"


OF_THE_SERVICE = frozenset(
    {EvalOutcome.VALUE, EvalOutcome.RAISED}
)  # its text is what the service said, else it is Relive's own


class ValuePart(Value):
    """A part of a value: its path, such as ``['user:47'].role``, and its representation."""

    path: str
    text: str


class Evaluated(Value):
    """What came of an expression.

    Attributes:
        process: the number, inside the target, of the process that was asked.
        type, text: of the value, or of the exception; text is its representation or message, cut off where it is long.
        length: of a text or container.
        parts: what is in it, as far as was asked for; cut: there is more.
        referrers: who refers to the value, as far as was asked for: paths; referrers_left_out: how many more there are.
        traceback: of an exception.
        ran_ms: how long the branch had run, at least, when it was asked: it goes on from the commit until then.
        refused: attempts to reach an address outside meanwhile; nothing leaves a branch.
    """

    process: int
    outcome: EvalOutcome
    type: str = ""
    text: str = ""
    length: int | None = None
    parts: list[ValuePart] = Field(default=[])
    cut: bool = False
    referrers: list[str] = Field(default=[])
    referrers_left_out: int = 0
    traceback: str = ""
    ran_ms: int = 0
    refused: int = 0


def death_told(signal: int = 0) -> str:
    """How a process ended that was asked, which may also be by what it was about to do; ``signal``: 0 where none is known."""
    how = f"died of signal {signal}" if signal else "ended"
    return f"its process {how}, by the expression or because the commit was taken right before its end"

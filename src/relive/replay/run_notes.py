"""What a run's verdict says beside the verdict: what made it weaker, what was not sent, what had no recorded answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from relive.model.outcome import Outcome, Verdict
from relive.replay.inprocess_events import EventWindow
from relive.replay.sequence import miss_words
from relive.replay.stubs.report import stub_words
from relive.replay.workers import elsewhere_words

__all__ = ["missing_words", "not_sent_words", "sent_anew_words", "with_notes"]

_NOTED_MISSES = 5


def with_notes(
    verdict: Verdict, window: EventWindow | None, outcome: Outcome, troubles: Collection[str]
) -> Verdict:
    """The verdict with what makes the comparison of events weaker, and what had no recorded answer."""
    misses = outcome.misses
    notes = [miss_words(miss) for miss in misses[:_NOTED_MISSES]]
    if len(misses) > _NOTED_MISSES:
        notes.append(f"{len(misses) - _NOTED_MISSES} more calls had no recorded answer")
    if outcome.stubs is not None:
        notes += stub_words(outcome.stubs)
    notes += map(elsewhere_words, outcome.elsewhere)
    if window is not None and window.lost:
        notes.append(
            f"{window.lost} events were lost when the service was recorded; calls among them have no answer"
        )
    if window is not None and window.left_out:
        notes.append(f"{window.left_out} events before the failure were too many to be laid out")
    if window is not None and window.damage:
        notes.append(f"what was recorded inside cannot be read to its end: {window.damage}")
    return verdict.model_copy(update={"inside": [*verdict.inside, *notes, *troubles]})


def not_sent_words(connections: int) -> list[str]:
    if not connections:
        return []
    words = "1 connection of a client" if connections == 1 else f"{connections} connections of clients"
    return [f"{words} carried something other than HTTP/1 that was not recorded, and was not sent again"]


def missing_words(gaps: int) -> list[str]:
    if not gaps:
        return []
    where = "at 1 place" if gaps == 1 else f"at {gaps} places"
    return [
        f"the recording is incomplete: something is missing {where} between the commit and the failure, and was not sent again"
    ]


def sent_anew_words(numbers: Sequence[int]) -> list[str]:
    if not numbers:
        return []
    which = f"request {numbers[0]}" if len(numbers) == 1 else f"each of {len(numbers)} requests"
    return [
        f"the service had closed the idle connection of {which} before it came, which was sent on a new one"
    ]

"""What the recording answered in a replay, and what it could not, in one line: what a verdict rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relive.model.outcome import InsideEvent, Outcome
from relive.recording.events import EventKind

__all__ = ["played_words"]

_NAMES = {
    EventKind.CLOCK: ("clock reading", "clock readings"),
    EventKind.RANDOM: ("random value", "random values"),
    EventKind.ENVIRONMENT_READ: ("environment variable", "environment variables"),
    EventKind.QUERY: ("query", "queries"),
    EventKind.HTTP_CALL: ("HTTP call", "HTTP calls"),
    EventKind.REDIS_COMMAND: ("Redis command", "Redis commands"),
    EventKind.S3_CALL: ("S3 call", "S3 calls"),
    EventKind.FILE_READ: ("file", "files"),
    EventKind.SUBPROCESS: ("program", "programs"),
}


def played_words(outcome: Outcome, *, has_inside: bool) -> str:
    """The line.

    Args:
        has_inside: the recorder inside the service answered in the branch.
    """
    answered = _inside(outcome.events or ()) if has_inside else []
    if outcome.stubs is not None and (given := outcome.stubs.given + outcome.stubs.simulated):
        answered.append(f"{given} {'question' if given == 1 else 'questions'} at the network")
    words = f"the recording answered {', '.join(answered) or 'nothing'}"
    if not has_inside:
        words += "; clock and randomness within the service were the branch's own"
    missed = len(outcome.misses)
    lacking = [f"{missed} {'call' if missed == 1 else 'calls'} without a recorded answer"] if missed else []
    refused = sum(one.times for one in outcome.unreached)
    refused += sum(one.times for one in outcome.stubs.strangers) if outcome.stubs is not None else 0
    if refused:
        lacking.append(
            f"{refused} {'connection' if refused == 1 else 'connections'} to what was not recorded"
        )
    return f"{words}; {' and '.join(lacking)}" if lacking else words


def _inside(events: Sequence[InsideEvent]) -> list[str]:
    counted = Counter(event.kind for event in events)
    return [f"{counted[kind]} {names[counted[kind] != 1]}" for kind, names in _NAMES.items() if counted[kind]]

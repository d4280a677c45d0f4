"""What the recording answered in a replay, and what it could not, in one line: what a verdict rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from relive.model.outcome import Outcome
from relive.recording.events import Event, EventKind

__all__ = ["played_words"]

_READINGS = {
    EventKind.CLOCK: ("clock reading", "clock readings"),
    EventKind.RANDOM: ("random value", "random values"),
}
_CALLS = {
    EventKind.QUERY: ("query", "queries"),
    EventKind.HTTP_CALL: ("HTTP call", "HTTP calls"),
    EventKind.REDIS_COMMAND: ("Redis command", "Redis commands"),
    EventKind.S3_CALL: ("S3 call", "S3 calls"),
}


def played_words(outcome: Outcome, inside: Sequence[Event] | None) -> str:
    """The line.

    Args:
        inside: what the processes with the recorder in them told in the sandbox, whether or not of the judged request; None where
            it answered nothing there. Files, SQLite, programs and the environment are in the sandbox itself, and not answered.
    """
    happened = inside or ()
    answered = _counted([one for one in happened if one.fields.get("played")], _READINGS | _CALLS)
    if outcome.stubs is not None and outcome.stubs.given:
        answered.append(_words(outcome.stubs.given, ("question at the network", "questions at the network")))
    parts = [f"the recording answered {_listed(answered) or 'nothing'}"]
    simulated = sum(bool(one.fields.get("simulated")) for one in happened)
    simulated += outcome.stubs.simulated if outcome.stubs is not None else 0
    if simulated:
        parts.append(f"{_words(simulated, ('answer', 'answers'))} could be worked out without it")
    if inside is None:
        parts.append("clock and randomness within the service were the sandbox's own")
    elif own := _counted([one for one in happened if not one.fields.get("played")], _READINGS):
        parts.append(f"{_listed(own)} came from the sandbox")
    if lacking := _lacking(outcome):
        parts.append(_listed(lacking))
    return "; ".join(parts)


def _lacking(outcome: Outcome) -> list[str]:
    missed, refused = len(outcome.misses), sum(one.times for one in outcome.unreached)
    refused += sum(one.times for one in outcome.stubs.strangers) if outcome.stubs is not None else 0
    lacking = (
        [_words(missed, ("call without a recorded answer", "calls without a recorded answer"))]
        if missed
        else []
    )
    if refused:
        lacking.append(
            _words(refused, ("connection to what was not recorded", "connections to what was not recorded"))
        )
    return lacking


def _counted(events: Iterable[Event], names: dict[EventKind, tuple[str, str]]) -> list[str]:
    counted = Counter(event.kind for event in events if not event.fields.get("simulated"))
    return [_words(counted[kind], forms) for kind, forms in names.items() if counted[kind]]


def _words(number: int, forms: tuple[str, str]) -> str:
    return f"{number} {forms[number != 1]}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))

"""What the stubs of a branch did, as values of an outcome, and in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relive.model.outcome import Miss, Stranger, Stubbed, Unasked
from relive.protocols.call import Call
from relive.protocols.pool import PoolMatch
from relive.replay.sequence import asked_words
from relive.replay.stubs.plan import StubPlan
from relive.replay.stubs.server import StubServer
from relive.sandbox.endpoints import Address

__all__ = ["misses_of_stubs", "stub_words", "stubbed"]

_MOST_UNASKED = 20
_MOST_WORDS = 5
_MOST_NAMES = 20
_LONG = 2048  # characters of one value that are kept


def stubbed(server: StubServer, plan: StubPlan, until_ns: int | None) -> Stubbed:
    """What they did.

    Args:
        until_ns: monotonic time of the failure; calls after it need not be asked. None: nobody can tell what should be.
    """
    left = (
        [call for call in server.left() if call.asked_mono_ns <= until_ns] if until_ns is not None else None
    )
    return Stubbed(
        continued=len(plan.resumes),
        opened=server.opened,
        given=server.given,
        simulated=server.simulated,
        missed=server.missed,
        left=len(left) if left is not None else None,
        unasked=[_unasked(call) for call in (left or [])[:_MOST_UNASKED]],
        strangers=[
            Stranger(to=_text(destination), times=times) for destination, times in server.strangers.items()
        ],
        notes=[*plan.notes, *server.notes],
    )


def misses_of_stubs(server: StubServer) -> list[Miss]:
    """The first hundred."""
    return [_miss(destination, found) for destination, found in server.misses]


def _miss(destination: Address | None, found: PoolMatch) -> Miss:
    return Miss(
        kind=found.kind.value,
        asked=_kept(found.asked),
        nearest=_kept(found.nearest.asked) if found.nearest is not None else None,
        differs=list(found.differs[:_MOST_NAMES]),
        policy="fail",
        to=_text(destination) if destination is not None else None,
        connection=found.connection,
    )


def _unasked(call: Call) -> Unasked:
    return Unasked(kind=call.kind.value, asked=_kept(call.asked), to=_text(call.to), connection=call.dialogue)


def _text(destination: Address) -> str:
    return (
        f"[{destination[0]}]:{destination[1]}"
        if ":" in destination[0]
        else f"{destination[0]}:{destination[1]}"
    )


def _kept(value: Any) -> Any:
    """The value with its long texts cut: a body of many megabytes is no part of an outcome."""
    if isinstance(value, str):
        return value if len(value) <= _LONG else f"{value[:_LONG]}… ({len(value)} characters)"
    if isinstance(value, Mapping):
        return {str(name): _kept(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(inner) for inner in value]
    return value


def stub_words(stubbed: Stubbed) -> list[str]:
    """What is worth a line beside a verdict."""
    words = [
        f"the service wanted to connect to {one.to}, which was never recorded ({_times(one.times)})"
        for one in stubbed.strangers[:_MOST_WORDS]
    ]
    if len(stubbed.strangers) > _MOST_WORDS:
        words.append(f"and to {len(stubbed.strangers) - _MOST_WORDS} more that were never recorded")
    if stubbed.left:
        first = stubbed.unasked[0]
        many = "1 recorded call was" if stubbed.left == 1 else f"{stubbed.left} recorded calls were"
        words.append(
            f"{many} not asked for; the first: {first.kind} {asked_words(first.asked)} to {first.to}"
        )
    return [*words, *stubbed.notes]


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"

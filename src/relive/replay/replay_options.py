"""How to replay: what a face asks for, and who wants to be told or may change a branch meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from relive.model.branch import Clock
from relive.model.outcome import Measured, Outcome
from relive.recording.events import Event
from relive.replay.answers import AnswerFiles, Calls
from relive.replay.branch_supply import BranchSupply
from relive.replay.plan import Pace
from relive.replay.precedence import inside_policy
from relive.replay.replay_input import ReplayInput
from relive.replay.stubs.speed import AS_RECORDED, Speed
from relive.sandbox.branch import Branch

__all__ = ["Meter", "ReplayOptions", "answers_for"]


class Meter(Protocol):
    """Measures a branch; ``close`` lets go of it, and may be called again."""

    def end(self) -> Measured:
        """What was measured until now; once."""

    def close(self) -> None:
        """Let go."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How to replay.

    Attributes:
        times: number of runs; jobs: branches that live at one time.
        ignore: parts of answers that may differ, see ``verdict.compare``.
        limit: seconds for the judged request; None: from what was recorded.
        lazily: branches run before their memory is all there.
        calls: who answers what the service asks others for.
        on_miss: kind of event, or "*", to what becomes of a call without a recorded answer: "fail", "pass", or a word of stubs
            (``protocols.registry``), to which inside the service such a call is passed.
        speed: recorded times, of requests and of stubs' answers, are divided by it.
        sees: told of the first process of each branch before it is stopped.
        changes: given each branch before anything is sent; what it raises ends the replay.
        measures: makes what measures a branch from before its requests are sent; None: nobody does.
        hears: told how the requests beside the judged one ended in a branch, by their numbers.
        follows: told what the processes of a branch noted, and which calls of the border it was given: (dialogue, index).
        anew: each branch is restored, and none put back in place.
        supply: where branches come from, which further replays will need; None: of this replay alone.
    """

    times: int = 1
    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    pace: Pace = Pace.RECORDED
    clock: Clock = Clock.RECORDED
    ignore: Collection[str] = ()
    limit: float | None = None
    lazily: bool = False
    calls: Calls = Calls.RECORDED
    on_miss: Mapping[str, str] = field(default_factory=dict)
    speed: Speed = AS_RECORDED
    sees: Callable[[int], None] = lambda _root: None
    changes: Callable[[Branch], None] = lambda _branch: None
    measures: Callable[[Branch], Meter] | None = None
    hears: Callable[[Mapping[int, Outcome]], None] = lambda _outcomes: None
    follows: Callable[[Sequence[Event], Collection[tuple[int, int]]], None] = lambda _events, _calls: None
    anew: bool = False
    supply: BranchSupply | None = None


def answers_for(case: ReplayInput, options: ReplayOptions) -> AnswerFiles | None:
    """What a branch of the case is answered with; None where nothing is to be, or was recorded inside."""
    if case.window is None or options.calls is not Calls.RECORDED:
        return None
    policy = inside_policy(options.on_miss, has_border=case.stubs is not None)
    return AnswerFiles(case.window, case.manifest.taken_monotonic_ns, policy, options.clock)

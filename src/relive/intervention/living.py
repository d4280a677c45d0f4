"""Replays with a change and without, counted against a bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from relive.config import Settings
from relive.intervention.changing import Changed, unread
from relive.intervention.grammar import Change
from relive.intervention.judging import LACKING, effect_of, fails_as_recorded, probability_left
from relive.intervention.steps import Step
from relive.intervention.telling import describe_changes
from relive.model.intervention import Tested
from relive.model.outcome import Run, VerdictKind
from relive.model.trial import FixRun
from relive.recording.events import Event
from relive.replay.replay import replay
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import ReplayOptions
from relive.replay.verdict import is_failure
from relive.store import Store
from relive.trial.effects import effects_of
from relive.trial.trying import run_words

__all__ = ["Bounds", "BoundsReached", "Lab", "Lived"]


class BoundsReached(Exception):
    """No further replay is allowed; the message says which bound it was."""


@dataclass(slots=True)
class Bounds:
    """How many replays are allowed, and until when one may begin. Counts them."""

    most: int
    seconds: float
    replays: int = 0
    _began: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def reserve_replays(self, count: int) -> None:
        """So many replays are made now; raises BoundsReached where that is not allowed."""
        if self.replays + count > self.most:
            raise BoundsReached(f"{self.most} replays were allowed (--most)")
        if self.spent > self.seconds:
            raise BoundsReached(f"{self.seconds:g} s were allowed (--within)")
        self.replays += count


@dataclass(frozen=True, slots=True)
class Lived:
    """Runs, and names of changed steps that one of them did not ask for."""

    runs: list[FixRun]
    unread: list[str]


@dataclass(frozen=True, slots=True)
class Lab:
    """Where replays are made.

    Attributes:
        options: how; ``times`` and what is heard of branches are set here.
        masked: takes secrets out of a run.
        done: told how many replays were made.
    """

    settings: Settings
    store: Store
    options: ReplayOptions
    bounds: Bounds
    masked: Callable[[Run], Run] = lambda run: run
    done: Callable[[int], None] = lambda _count: None

    def live(self, changed: Changed, times: int) -> Lived:
        """Replay so often, one after the other. Raises BoundsReached; call it from a process with one thread."""
        self.bounds.reserve_replays(times)
        missing: list[str] = []

        def follow(events: Sequence[Event], calls: Collection[tuple[int, int]]) -> None:
            missing.extend(unread(changed, events, calls))

        options = replace(self.options, times=times, jobs=1, follows=follow)
        replayed = asyncio.run(replay(self.settings, self.store, changed.case, options))
        self.done(self.bounds.replays)
        return Lived([_fix_run(self.masked(run)) for run in replayed.runs], list(dict.fromkeys(missing)))

    def unchanged(self, case: ReplayInput, times: int) -> list[FixRun]:
        """The control."""
        return self.live(Changed(case), times).runs

    def test(
        self,
        case: ReplayInput,
        changed: Changed,
        changes: Sequence[Change],
        control: list[FixRun],
        times: int,
        steps: Sequence[Step],
    ) -> Tested:
        """Replay with changes, and judge beside the unchanged runs of the same case."""
        lived = self.live(changed, times)
        effect, why = effect_of(control, lived.runs, lived.unread)
        return Tested(
            changes=describe_changes(case, changes, steps),
            commit=case.commit,
            effect=effect,
            why=why,
            control=control,
            runs=lived.runs,
            unread=lived.unread,
            still_there=probability_left(control, lived.runs)
            if any(map(fails_as_recorded, control))
            else None,
        )


def _fix_run(run: Run) -> FixRun:
    outcome, verdict = run.outcome, run.verdict
    if outcome is None:
        return FixRun(fails=None, result="not restored", difference=verdict.difference)
    result = run_words(verdict.kind, outcome)
    if verdict.kind is VerdictKind.SAME_ANSWER and verdict.missing:
        result = LACKING  # it may have failed for want of what nobody recorded
    effects = effects_of(outcome, [])
    return FixRun(
        fails=is_failure(outcome),
        result=result,
        status=outcome.status,
        exception=outcome.stack.exception if outcome.stack is not None else None,
        seconds=outcome.seconds,
        difference=verdict.missing[0] if result == LACKING else verdict.difference,
        missing=verdict.missing,
        played=verdict.played,
        effects=effects.model_copy(update={"unanswered": max(effects.unanswered, len(verdict.missing))}),
    )

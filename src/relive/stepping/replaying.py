"""A case replayed once, followed line by line, and whose request each line ran for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from relive.config import Settings
from relive.model.outcome import Run
from relive.recording.events import Event
from relive.recording.exchanges import Exchange
from relive.replay.inprocess_events import request_again, request_inside
from relive.replay.replay import replay
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import ReplayOptions
from relive.replay.verdict import is_failure
from relive.sandbox.branch import Branch
from relive.stepping.following import Following, Point, WatchedExpression, follow
from relive.store import Store
from relive.trial.trying import run_words

__all__ = ["FollowedReplay", "Requests", "replay_followed", "result_words", "trouble_of"]

_SLOWER = 6.0  # times that a request may take which is followed line by line
_LEAST = 60.0  # [s]


@dataclass(frozen=True, slots=True)
class Requests:
    """By (process, number of the request in it), as the recorder inside counts, the request as the proxy does. Empty where nothing
    was recorded inside.

    Attributes:
        process: the one that worked for the failing request in this replay; None where it is not known.
        is_elsewhere: that is another worker than in the recording.
    """

    exchanges: Mapping[tuple[int, int], Exchange]
    process: int | None = None
    is_elsewhere: bool = False

    def number(self, pid: int, inside: int) -> int | None:
        """None where it is not known, or there is none."""
        found = self.exchanges.get((pid, inside))
        return found.number if found is not None else None

    def words(self, pid: int, inside: int) -> str | None:
        """``request 21 (GET /price/honey)``."""
        found = self.exchanges.get((pid, inside))
        return f"request {found.number} ({found.method} {found.target})" if found is not None else None


@dataclass(frozen=True, slots=True)
class FollowedReplay:
    """``following`` is None where the branch could not be restored, which the run says."""

    run: Run
    following: Following | None
    requests: Requests


@contextmanager
def replay_followed(
    settings: Settings,
    store: Store,
    case: ReplayInput,
    options: ReplayOptions,
    points: Sequence[Point],
    watch: WatchedExpression | None = None,
    *,
    most: int,
) -> Iterator[FollowedReplay]:
    """Replay once; what was seen can be read for the block, when the branch is gone. Call it from a process with one thread.

    Args:
        most: records that are kept of each process.

    Raises:
        PlaceUnfit, RestoreFailed: as ``follow``; the branch is gone then.
    """
    followed: list[Following] = []
    seen: list[Event] = []

    def begin(branch: Branch) -> None:
        followed.append(follow(branch, points, watch, most, limit=options.limit or math.inf))

    def hear(events: Sequence[Event], _calls: Collection[tuple[int, int]]) -> None:
        seen.extend(events)

    limit = options.limit
    if limit is None and case.hung_seconds is None:
        limit = max(_LEAST, case.limit * _SLOWER)
    once = replace(options, times=1, jobs=1, changes=begin, follows=hear, limit=limit)
    try:
        (run,) = asyncio.run(replay(settings, store, case, once)).runs
        yield FollowedReplay(run, followed[0] if followed else None, _requests(case, seen))
    finally:
        for one in followed:
            one.close()


def _requests(case: ReplayInput, seen: list[Event]) -> Requests:
    if case.window is None:
        return Requests({})
    found: dict[tuple[int, int], Exchange] = {}
    for step in case.plan.steps:
        inside = request_inside(case.window.events, step.exchange)
        if inside is not None:
            found[inside] = step.exchange
    if case.exchange is not None and case.inside is not None:
        found[case.inside] = case.exchange
        again = request_again(seen, case.inside, case.exchange)
        if again is not None:
            found[again] = case.exchange
            return Requests(found, again[0], again[0] != case.inside[0])
    return Requests(found)


def result_words(run: Run) -> tuple[bool | None, str]:
    """(whether it failed, in words); None where it could not be run."""
    if run.outcome is None:
        return None, f"not restored: {run.verdict.difference}"
    return is_failure(run.outcome), run_words(run.verdict.kind, run.outcome)


def trouble_of(followed: FollowedReplay) -> str | None:
    """Why something may not have been seen, in a sentence."""
    if followed.following is None:
        return None
    if followed.following.is_evaluating():
        return "an expression did not end before the time was over, or the process died in it"
    if not followed.following.lines():
        return "no line of the service's own code ran"
    return None

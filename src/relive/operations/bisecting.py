"""Bisecting: between which two commits of a service something began, what was asked of it in between, and what it changed."""

from __future__ import annotations

import dataclasses

from relive.bisection.curve import commits_of_curve
from relive.bisection.finding import find_jumps, find_rate_jumps, probe_again
from relive.config import Settings
from relive.incidents.incidents import Incidents
from relive.model.token_scope import Scope
from relive.operations.bisect_line import commits_between, probe_of
from relive.operations.bisect_result import Bisection, bisection_of
from relive.operations.bisect_wish import TIMES, BisectWish, check_wish
from relive.operations.operation import Effect, Faces, Operation, Route, Tool
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store import Store

__all__ = ["BISECT", "bisect"]


def bisect(settings: Settings, wish: BisectWish, progress: Progress) -> Bisection:
    """Probe commits in sealed branches, one after the other, until it is known where it changed; secrets are masked.

    Raises:
        UsageError: what is asked for cannot be meant, the ends are not as said, or the predicate crashes or hangs.
        RefUnknown, RefAmbiguous, StoreError, IncidentUnknown: there is nothing to be asked.
    """
    check_wish(wish)
    tend(settings, progress)
    store = Store(settings.store)
    incident = Incidents(settings.incidents).get(wish.replay) if wish.replay is not None else None
    line = commits_between(store, wish, incident)
    probe = probe_of(settings, store, wish, incident, line)
    with progress.progress("probing", wish.most if wish.flaky else _expected(len(line), wish)) as done:
        if wish.flaky:
            found = find_rate_jumps(
                *(len(line), probe),
                confidence=wish.confidence,
                further=wish.further,
                most=wish.most,
                done=done,
            )
        else:
            found = find_jumps(
                *(len(line), probe),
                further=wish.further,
                most=wish.most,
                is_good_named=wish.good is not None,
                is_bad_named=wish.bad is not None or incident is None,
                done=done,
            )
    drawn: list[int] = []
    if wish.curve is not None:
        drawn = commits_of_curve(len(line), wish.curve, found.spans)
        times = wish.times or TIMES
        with progress.progress("probing again", len(drawn) * times) as done:
            evidence = probe_again(found.evidence, drawn, probe, times=times, done=done)
        found = dataclasses.replace(found, evidence=evidence)
    return bisection_of(settings, wish, line, found, drawn)


def _expected(count: int, wish: BisectWish) -> int:
    return min(wish.most, 2 + count.bit_length() + wish.further)


def _look_up(settings: Settings, wish: BisectWish) -> None:
    check_wish(wish)
    if wish.replay is not None:
        Incidents(settings.incidents).get(wish.replay)
    store = Store(settings.store)
    for ref in filter(None, (wish.good, wish.bad)):
        store.resolve(ref)


BISECT = Operation(
    "bisect",
    BisectWish,
    Bisection,
    bisect,
    Faces(
        cli=("bisect",),
        rest=Route(
            "POST",
            "/bisections",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Find the first commit in which something holds, the requests before it, and what they changed",
            is_task=True,
        ),
        mcp=Tool(
            Effect.READS,
            "Find the first commit in which something holds: a Python expression (`when`), a command (`run`), an HTTP request "
            "(`http`), or an incident's request that fails (`replay`). Names the requests between it and the commit before, and "
            "the values they changed. Commits are asked in throw-away branches.",
        ),
    ),
    look_up=_look_up,
)

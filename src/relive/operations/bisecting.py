"""Bisecting: between which two commits of a service something began, what was asked of it in between, and what it changed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from relive.bisection.curve import commits_of_curve
from relive.bisection.finding import Jumps, find_jumps, find_rate_jumps, probe_again
from relive.bisection.judgement import Judged
from relive.config import Settings
from relive.incidents.incidents import Incidents
from relive.model.token_scope import Scope
from relive.operations.bisect_line import asking, commits_between, probe_of
from relive.operations.bisect_params import TIMES, BisectParams, check_params
from relive.operations.bisect_result import Bisection, bisection_of
from relive.operations.branch_memory import branches_with_memory
from relive.operations.operation import Effect, Faces, Operation, Route, Tool
from relive.operations.probing_ahead import ProbesAhead
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.sandbox.branch import sweep
from relive.store import Store
from relive.store.index import StoredCommit

if TYPE_CHECKING:
    from relive.operations.bisect_line import CommitProbe

__all__ = ["BISECT", "bisect"]


def bisect(settings: Settings, params: BisectParams, progress: Progress) -> Bisection:
    """Probe commits in sealed branches until it is known where it changed; secrets are masked.

    Several are probed at one time; what is found is as if it were one after the other (``ProbesAhead``).

    Raises:
        UsageError: what is asked for cannot be meant, the ends are not as said, or the predicate crashes or hangs.
        RefUnknown, RefAmbiguous, StoreError, IncidentUnknown: there is nothing to be asked.
    """
    check_params(params)
    tend(settings, progress)
    store = Store(settings.store)
    incident = Incidents(settings.incidents).get(params.replay) if params.replay is not None else None
    line = commits_between(store, params, incident)
    probe = probe_of(settings, store, params, incident, line)
    jobs = _jobs(store, params, line[-1])
    store.close()  # its database is nothing for forked processes, which open their own
    ahead = min(jobs, params.jobs or _worth_asking(os.cpu_count() or 1, os.getloadavg()[0]))
    with ProbesAhead(_in_worker(settings, probe, line), jobs, partial(sweep, settings)) as probes:
        found, drawn = _find(params, len(line), probes, ahead, progress)
    return bisection_of(settings, params, line, found, drawn)


def _jobs(store: Store, params: BisectParams, last: StoredCommit) -> int:
    """Probes at one time: as many as are asked, and this host has memory for, as the last commit has grown."""
    # One more may live than are asked at a time, see ``ProbesAhead``.
    wanted = (params.jobs or (os.cpu_count() or 1) + 1) + 1
    return max(1, branches_with_memory(store.facts(last.id), wanted) - 1)


def _worth_asking(processors: int, load: float) -> int:
    """Probes at one time where some may be in vain: one, and one for each processor that has nothing to do."""
    return 1 + max(0, processors - round(load))


def _in_worker(
    settings: Settings, probe: CommitProbe, line: Sequence[StoredCommit]
) -> Callable[[int], Judged]:
    """What asks a commit in a forked process, with a store of that process's own."""
    own: list[Callable[[int], Judged]] = []

    def ask(at: int) -> Judged:
        if not own:
            own.append(asking(dataclasses.replace(probe, store=Store(settings.store)), line))
        return own[0](at)

    return ask


def _find(
    params: BisectParams, count: int, probes: ProbesAhead, ahead: int, progress: Progress
) -> tuple[Jumps, Sequence[int]]:
    """Where it changes, and which commits of the line the curve is drawn of.

    Args:
        ahead: probes at one time where some may be in vain.
    """

    def foresee(likely: Iterable[int]) -> None:
        probes.foresee(islice(likely, ahead))

    with progress.progress("probing", params.most if params.flaky else _expected(count, params)) as done:
        if params.flaky:
            found = find_rate_jumps(
                *(count, probes),
                confidence=params.confidence,
                further=params.further,
                most=params.most,
                done=done,
                foresee=foresee,
            )
        else:
            found = find_jumps(
                *(count, probes),
                further=params.further,
                most=params.most,
                is_good_named=params.good is not None,
                is_bad_named=params.bad is not None or params.replay is None,
                done=done,
                foresee=foresee,
            )
    if params.curve is None:
        return found, []
    drawn = commits_of_curve(count, params.curve, found.spans)
    times = params.times or TIMES
    with progress.progress("probing again", len(drawn) * times) as done:
        evidence = probe_again(
            *(found.evidence, drawn, probes), times=times, done=done, foresee=probes.foresee
        )
    return dataclasses.replace(found, evidence=evidence), drawn


def _expected(count: int, params: BisectParams) -> int:
    return min(params.most, 2 + count.bit_length() + params.further)


def _look_up(settings: Settings, params: BisectParams) -> None:
    check_params(params)
    if params.replay is not None:
        Incidents(settings.incidents).get(params.replay)
    store = Store(settings.store)
    for ref in filter(None, (params.good, params.bad)):
        store.resolve(ref)


BISECT = Operation(
    "bisect",
    BisectParams,
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

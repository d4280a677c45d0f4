"""Replays under a schedule: requests are held back, threads take turns otherwise, and what happened in which order is heard."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import relive_inprocess.relive_chaos as chaos_program
from relive.config import Settings
from relive.intervention.living import Bounds
from relive.intervention.related import related_requests
from relive.intervention.schedules import Schedule, held
from relive.intervention.swaps import Happened, noted_delays, order_of
from relive.kernel import procfs
from relive.model.outcome import Run
from relive.recording.events import Event
from relive.replay.replay import replay
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import ReplayOptions
from relive.replay.verdict import is_failure
from relive.sandbox.branch import Branch
from relive.store import Store
from relive.trial.swapping import asked_swapper, python_processes

__all__ = ["Variation", "VariedRun", "varied_case", "varying"]


@dataclass(frozen=True, slots=True)
class VariedRun:
    """A run under a schedule.

    Attributes:
        fails: it ended in a failure; None: nobody knows, since it was not restored or lacked answers.
        order: what happened inside, in the order of time; empty where nobody recorded that.
        delays: place to milliseconds, of those that really were.
    """

    run: Run
    fails: bool | None
    order: list[Happened]
    delays: dict[str, float]


@dataclass(frozen=True, slots=True)
class Variation:
    """Where a case is replayed under schedules.

    Attributes:
        options: how; ``times`` and what is heard of branches are set here. masked: takes secrets out of a run.
        done: told how many replays were made.
    """

    settings: Settings
    store: Store
    case: ReplayInput
    options: ReplayOptions
    bounds: Bounds
    masked: Callable[[Run], Run] = lambda run: run
    done: Callable[[int], None] = lambda _count: None

    @property
    def near(self) -> frozenset[str]:
        """Requests that are about the same as the judged one."""
        return related_requests(self.case)

    def live(self, schedule: Schedule | None) -> VariedRun:
        """Once; None: as ever. Raises BoundsReached; call it from a process with one thread."""
        self.bounds.reserve_replays(1)
        heard: list[Event] = []

        def follow(events: Sequence[Event], _calls: Collection[tuple[int, int]]) -> None:
            heard.extend(events)

        case, delays = (self.case, {}) if schedule is None else varied_case(self.case, schedule)
        options = replace(self.options, times=1, jobs=1, follows=follow)
        if schedule is not None:
            options = replace(options, changes=varying(schedule, self.options.changes))
        (run,) = asyncio.run(replay(self.settings, self.store, case, options)).runs
        self.done(self.bounds.replays)
        return VariedRun(self.masked(run), _fails(run), order_of(heard), delays | noted_delays(heard))


def varied_case(case: ReplayInput, schedule: Schedule) -> tuple[ReplayInput, dict[str, float]]:
    """(the case with its requests held back, by which delays)."""
    plan, delays = held(case.plan, schedule)
    return replace(case, plan=plan), delays


def varying(
    schedule: Schedule, also: Callable[[Branch], None] = lambda _branch: None
) -> Callable[[Branch], None]:
    """A change of a branch: its processes run by a schedule. It raises RestoreFailed."""

    def change(branch: Branch) -> None:
        also(branch)
        for pid in python_processes(branch):
            asked_swapper(pid, schedule.question(), chaos_program)
        if schedule.priorities or schedule.one_processor:
            for pid in procfs.tree_of(branch.facts.root):
                _set_threads(pid, schedule)

    return change


def _set_threads(pid: int, schedule: Schedule) -> None:
    """Threads that begin later inherit it from who starts them. One that has ended meanwhile is passed over."""
    one = min(os.sched_getaffinity(0))
    for rank, tid in enumerate(sorted(procfs.threads_of(pid))):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, tid, schedule.nice(rank))
            if schedule.one_processor:
                os.sched_setaffinity(tid, {one})


def _fails(run: Run) -> bool | None:
    if run.outcome is None:
        return None
    return None if run.verdict.missing else is_failure(run.outcome)

"""``replay``: from a commit before the failure, in fresh sealed branches, the recorded requests again, and a verdict each.

The branches are restored one after the other and then run side by side; each is stopped as soon as its outcome is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from relive.config import Settings
from relive.model.outcome import Replay, Run
from relive.replay.branch_supply import BranchSupply
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import ReplayOptions, answers_for
from relive.replay.run import run_once
from relive.store import Store

__all__ = ["replay"]


async def replay(
    settings: Settings,
    store: Store,
    case: ReplayInput,
    options: ReplayOptions,
    progress: Callable[[int], None] = lambda _done: None,
    *,
    had: Collection[Run] = (),
    ended: Callable[[Run], None] = lambda _run: None,
) -> Replay:
    """Run the case as often as asked.

    A branch that cannot be restored gives a run with the verdict "failed to restore" and does not end the others.
    Call it from a process with one thread.

    Args:
        progress: called with the number of runs that are done.
        had: runs that were done before; they count, and only the others are made.
        ended: called with each run that was made as soon as it has ended; what it raises ends the replay.
    """
    slots = asyncio.Semaphore(max(1, options.jobs))
    answers = answers_for(case, options)
    done = len(had)
    if done:
        progress(done)

    missing = sorted(set(range(1, options.times + 1)) - {run.number for run in had})
    begun = 0

    def left() -> int:
        return len(missing) - begun

    async def one(number: int) -> Run:
        nonlocal done, begun
        async with slots:
            begun += 1
            run = await run_once(branches, case, options, answers, number, left)
        ended(run)
        done += 1
        progress(done)
        return run

    branches = options.supply or BranchSupply(settings, store)
    try:
        made = await asyncio.gather(*(one(number) for number in missing))
    finally:
        if options.supply is None:
            await branches.close()
    return Replay(
        service=case.service,
        incident=case.incident,
        request=case.plan.subject,
        commit=case.commit,
        recorded=case.recorded,
        unrecorded=list(case.unrecorded),
        runs=sorted([*had, *made], key=lambda run: run.number),
        prepare_seconds=case.prepare_seconds,
    )

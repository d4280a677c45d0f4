"""The parts of a trial, several at one time, each in a forked process: runs of a fix, or its neighbours.

A branch mostly waits: for the moment at which the next request had come, for the last lines of a log. So several live at one time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from pydantic import Field

from relive.errors import ChangeUnfit, PatchUnfit, ReliveError
from relive.model.trial import FixRun, NeighbourDifference, Swapped
from relive.model.value import Value
from relive.operations.forked_workers import end_with, in_forked_workers
from relive.replay.branch_supply import lasting_branches
from relive.sandbox.branch import sweep
from relive.store import Store
from relive.trial.lives import Change
from relive.trial.trying import NOT_RESTORED, Neighbours, TrialContext, run_fix, run_neighbours

__all__ = ["FixParts", "PartDone", "run_parts"]

_KILLED = "the process that ran it was killed"
_TOGETHER = 10  # runs of one fix in one process: a branch that was put back for the next saves its restore


@dataclass(slots=True)
class FixParts:
    """What came of all parts of one fix.

    Attributes:
        refusal: why it cannot be tried.
        differing: the neighbours that ended otherwise than recorded.
    """

    runs: list[FixRun]
    swapped: Swapped | None = None
    refusal: PatchUnfit | ChangeUnfit | None = None
    differing: list[NeighbourDifference] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Part:
    """``numbers``: of the runs; none: the neighbours."""

    fix: int
    numbers: range

    @property
    def size(self) -> int:
        """As how many runs it counts."""
        return max(1, len(self.numbers))


class PartDone(Value):
    """What a forked process says of a part; ``error``: as ``ReliveError.as_json``."""

    runs: list[FixRun] = Field(default=[])
    swapped: Swapped | None = None
    differing: list[NeighbourDifference] = Field(default=[])
    error: dict[str, str | None] | None = None


def run_parts(
    context: TrialContext,
    fixes: Sequence[tuple[Change | None, int]],
    near: Neighbours | None,
    jobs: int,
    masked: Callable[[PartDone], PartDone],
    done: Callable[[int], None],
) -> list[FixParts]:
    """All runs of all fixes. The caller must have one thread, and use ``context.store`` no more: it is closed.

    Args:
        fixes: (change, runs) of each.
        jobs: branches at one time.
        masked: takes secrets out of what a process says; each learns those of its own branches.
        done: called with the number of runs that are over, the neighbours' among them.

    Raises:
        ReliveError: what a part raised, but for a change that cannot be made; or one with neighbours was killed.
    """
    parts = _parts([times for _, times in fixes], has_neighbours=near is not None)
    caller = os.getpid()

    def work(number: int) -> str:
        end_with(caller)
        part = parts[number]
        return masked(_carried_out(context, part, fixes[part.fix][0], near)).model_dump_json()

    answers: list[str | None] = [None] * len(parts)
    over = 0
    context.store.close()  # its database is nothing for forked processes, which open their own
    clear_up = partial(sweep, context.settings)
    for number, line in in_forked_workers(range(len(parts)), jobs, work, lambda _line: None, clear_up):
        answers[number] = line
        over += parts[number].size
        done(over)
    return [
        _gathered([(part, answers[at]) for at, part in enumerate(parts) if part.fix == fix])
        for fix in range(len(fixes))
    ]


def _parts(times: Sequence[int], *, has_neighbours: bool) -> list[_Part]:
    """Those of the first fix, which all others are compared with, first."""
    parts = []
    for fix, count in enumerate(times):
        parts += [
            _Part(fix, range(first, min(first + _TOGETHER, count + 1)))
            for first in range(1, count + 1, _TOGETHER)
        ]
        if (
            has_neighbours
        ):  # those of the first fix twice: what differs now and then is nothing that another one does
            parts += [_Part(fix, range(0))] * (2 if fix == 0 else 1)
    return parts


def _carried_out(
    context: TrialContext, part: _Part, change: Change | None, near: Neighbours | None
) -> PartDone:
    try:
        store = Store(context.settings.store)
        with contextlib.closing(store), lasting_branches(context.settings, store) as supply:
            own = replace(context, store=store, options=replace(context.options, supply=supply))
            if not part.numbers and near is not None:
                return PartDone(differing=run_neighbours(own, near, change))
            made = run_fix(own, change, part.numbers)
            return PartDone(runs=made.runs, swapped=made.swapped)
    except ReliveError as error:
        return PartDone(error=error.as_json())


def _gathered(answers: Sequence[tuple[_Part, str | None]]) -> FixParts:
    """What the parts of one fix said.

    Raises:
        ReliveError: a part raised it, or nobody knows what became of the neighbours, which is not that none differs.
    """
    found = FixParts([])
    for part, line in answers:
        if line is None and not part.numbers:
            raise ReliveError("the neighbouring requests could not be sent", cause=_KILLED)
        if line is None:
            found.runs += [FixRun(fails=None, result=NOT_RESTORED, difference=_KILLED) for _ in part.numbers]
            continue
        done = PartDone.model_validate_json(line)
        if done.error is not None:
            error = ReliveError.from_json(done.error)
            if not isinstance(error, (PatchUnfit, ChangeUnfit)):
                raise error
            return FixParts([], refusal=error)
        found.runs += done.runs
        found.swapped = found.swapped or done.swapped
        known = {one.request for one in found.differing}
        found.differing += [one for one in done.differing if one.request not in known]
    return found

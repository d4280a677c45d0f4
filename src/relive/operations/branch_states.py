"""Branches as they are now."""

from __future__ import annotations

from relive.config import Settings
from relive.errors import BranchUnknown, DiskFilled
from relive.kernel.wait_status import shell_status
from relive.model.branch import BranchFacts
from relive.operations.operation import Result
from relive.sandbox.branch import Branch, find_branch, list_branches, sweep

__all__ = ["BranchState", "branch_state", "branch_states", "find_living"]


class BranchState(Result):
    """A branch as it is now.

    Attributes:
        state: in words; memory: percent of it that is there, of a branch restored lazily.
    """

    facts: BranchFacts
    is_alive: bool
    state: str
    memory: int | None


def branch_states(settings: Settings, *, ended: bool = False) -> list[BranchState]:
    """The branches of this host, oldest first; with those that have ended where wanted, but for what a killed command left."""
    sweep(settings)
    return [_as_it_is(branch) for branch in list_branches(settings) if ended or branch.is_alive]


def branch_state(settings: Settings, branch: str) -> BranchState:
    """One branch, also one that has ended; raises BranchUnknown."""
    return _as_it_is(find_branch(settings, branch))


def _as_it_is(branch: Branch) -> BranchState:
    return BranchState(
        facts=branch.facts,
        is_alive=branch.is_alive,
        state=_state(branch),
        memory=branch.memory.percent if branch.memory is not None else None,
    )


def _state(branch: Branch) -> str:
    status, memory = branch.wait_status, branch.memory
    cut_short = branch.cut_short
    if cut_short is not None:
        filled = isinstance(cut_short, DiskFilled)
        return "ended (the disk was filling up)" if filled else "ended (its memory was not all there)"
    if status is not None:
        return f"ended ({shell_status(status)})"
    if not branch.is_alive:
        return "ended"
    if memory is not None and not memory.is_complete:
        return f"running, {memory.percent} % of its memory is there"
    return "running, its stubs have ended" if branch.stubs_ended else "running"


def find_living(settings: Settings, branch: str) -> Branch:
    """The running branch of an id or a unique beginning of one; raises BranchUnknown."""
    found = find_branch(settings, branch)
    if not found.is_alive:
        raise BranchUnknown(
            f"the branch {found.facts.id} has ended", remedy="`relive logs` still shows what it said"
        )
    return found

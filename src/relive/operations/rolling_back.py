"""Rolling back: a branch is again what its commit was, or another commit of the same life, under its id, name and ports.

Where a rewinder keeps what the branch was before it ran (``sandbox.rewinder``), and what differs can be put back, that is done in
place. Else, and always at the first time:

1. The commit is restored beside the branch, which meanwhile goes on. What comes to life is *owned*: it ends with this process.
   A rewinder keeps what it is, for the next time.
2. The branch's ports pass to it, the branch ends, and its id passes over, too.

Whatever fails before 2 leaves the branch as it is, but for one whose service was killed in the middle of being put back in place
(``Spoilt``): it has ended, and can be rolled back again. Killed between its end and the passing of its id, neither is left: there
is never one that is partly the one and partly the other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from pydantic import Field

from relive.config import Settings
from relive.errors import BranchUnknown, ReliveError, RestoreFailed, UsageError
from relive.kernel.claims import claimed
from relive.model.branch import BranchFacts, Publication
from relive.model.commit import CommitId
from relive.model.quantities import duration
from relive.model.token_scope import Scope
from relive.operations.operation import Effect, Faces, Operation, Params, Route, Tool
from relive.operations.progress import Progress
from relive.operations.restoring import BranchParams, bring_to_life, report_differences
from relive.operations.targets import tend
from relive.sandbox.branch import Branch, find_branch
from relive.sandbox.publish import publish
from relive.sandbox.rewinder import CannotRewind, put_back
from relive.store import Store

__all__ = ["ROLLBACK", "RollbackParams", "rollback"]


class RollbackParams(Params):
    """Which branch, and to which state."""

    branch: str = Field(description="The branch's id, or a unique beginning of it")
    ref: str | None = Field(
        default=None, description="Another commit of the same life of its service; default: its own commit"
    )


def rollback(settings: Settings, params: RollbackParams, progress: Progress) -> BranchFacts:
    """Put a branch back to its commit, or to another one of the same life, with its id, name, ports, clock and options.

    One that has ended comes to life again. All that happened in it is gone, also what it said and what was set in it.

    Raises:
        BranchUnknown: there is no such branch (any more).
        UsageError: it belongs to a command that runs, the commit is not of its life, or one of its ports was taken.
        RefUnknown, RefAmbiguous, StoreError: the store cannot give the commit.
        RestoreFailed: the commit did not come to life; the branch goes on as it was.
    """
    tend(settings, progress)
    store = Store(settings.store)
    old = find_branch(settings, params.branch)
    commit = _commit_of(store, old, params)
    with _alone(settings, old):
        if in_place := _put_back(old, commit, progress):
            return in_place
        again = _as_restored(old, commit)
        new = bring_to_life(settings, store, commit, again, old.facts.name, is_owned=True, rewinds=True)
        try:
            _replace(old, new)
        except BaseException:
            new.stop()
            raise
    progress.status("It was restored anew in the branch's place, with all its memory and files.")
    pending = report_differences(settings, store, store.manifest(commit), new.facts, progress)
    return new.facts.model_copy(update={"newer_pending": pending})


def _put_back(branch: Branch, commit: CommitId, progress: Progress) -> BranchFacts | None:
    """Put it back in place; None where that cannot be."""
    began = time.monotonic_ns()
    try:
        if commit != branch.facts.commit:
            raise CannotRewind("it becomes another commit")
        if branch.facts.stubs is not None:
            raise CannotRewind("what answers its service cannot be put back")
        done = put_back(branch.directory)
    except CannotRewind as refusal:
        progress.status(f"It cannot be put back in place: {refusal}.")
        return None
    progress.status(
        f"It was put back in place: {done.pages} pages, and stood still for {duration(done.paused_ns // 1000)}."
    )
    took = (time.monotonic_ns() - began) // 1000
    return branch.facts.model_copy(update={"restore_us": took})


def _commit_of(store: Store, branch: Branch, params: RollbackParams) -> CommitId:
    """The one that is asked for; raises UsageError when the branch cannot become it."""
    facts = branch.facts
    if facts.is_owned:
        raise UsageError(
            f"the branch {facts.id} cannot be rolled back",
            cause="it belongs to a replay, a debugger or another command that is at work in it",
            remedy="let that end first",
        )
    if params.ref is None:
        return store.resolve(facts.commit)
    commit = store.resolve(params.ref)
    if commit != facts.commit and not _are_of_one_life(store, commit, facts.commit):
        raise UsageError(
            f"the branch {facts.id} cannot be rolled back to {params.ref!r}",
            cause="that commit is of another life, or of another service",
            remedy=f"`relive restore {params.ref}` brings it to life as a branch of its own",
        )
    return commit


def _are_of_one_life(store: Store, one: CommitId, other: CommitId) -> bool:
    first, second = store.manifest(one).target, store.manifest(other).target
    return first.life is not None and (first.name, first.life) == (second.name, second.life)


def _as_restored(branch: Branch, commit: CommitId) -> BranchParams:
    facts = branch.facts
    return BranchParams(
        ref=commit,
        clock=facts.clock,
        clients=facts.clients,
        lazy=facts.pager is not None,
        stubs=facts.wants_stubs,
        speed=facts.speed,
    )


@contextlib.contextmanager
def _alone(settings: Settings, branch: Branch) -> Iterator[None]:
    """Nobody else rolls the branch back within the block, nor has since it was found."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(claimed(branch.directory, at_once=True))
        except BlockingIOError:
            raise UsageError(
                f"the branch {branch.facts.id} is being rolled back by another command",
                remedy="try again when that has ended",
            ) from None
        except OSError:
            raise _gone(branch) from None
        if find_branch(settings, branch.facts.id).facts.init != branch.facts.init:
            raise _gone(branch)
        yield


def _gone(branch: Branch) -> BranchUnknown:
    return BranchUnknown(
        f"the branch {branch.facts.id} was stopped, or rolled back, by another command meanwhile",
        remedy="`relive ps` lists branches",
    )


def _replace(old: Branch, new: Branch) -> None:
    """The one that came to life becomes the branch; raises ReliveError while the branch still goes on."""
    if not new.is_alive:
        raise RestoreFailed("the commit came to life and ended at once", remedy="see what its service logs")
    if not old.directory.exists():
        raise _gone(old)
    ports = old.facts.publications
    old.unpublish()
    try:
        _publish(new, ports)
    except BaseException:
        new.stop()
        with contextlib.suppress(ReliveError):
            _publish(old, ports)
        raise
    mark = old.facts.mark  # not that of this task, whose branches are stopped when it is begun again
    old.stop()
    new.facts = new.facts.model_copy(update={"id": old.facts.id, "mark": mark})
    new.outlive_caller()


def _publish(branch: Branch, ports: Sequence[Publication]) -> None:
    for one in ports:
        publish(branch, one.host, one.host_port, one.port)


def _look_up(settings: Settings, params: RollbackParams) -> None:
    find_branch(settings, params.branch)
    if params.ref is not None:
        Store(settings.store).resolve(params.ref)


ROLLBACK = Operation(
    "rollback",
    RollbackParams,
    BranchFacts,
    rollback,
    Faces(
        cli=("rollback",),
        rest=Route(
            "POST",
            "/branches/rollback",
            frozenset({Scope.OPERATE}),
            "Put a branch back to its commit, or to another of the same life; it keeps its id, name and ports",
            is_task=True,
        ),
        mcp=Tool(
            Effect.DESTROYS,
            "Put a branch back to its commit, or to another commit of the same life: it keeps its id, name and published ports, "
            "and all that happened in it is gone. Only the branch is changed.",
            is_acting=True,
        ),
    ),
    look_up=_look_up,
)

"""Many branches of one commit: it is read and checked once, then they come to life side by side, each sealed for itself."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Generator
from functools import partial

from pydantic import Field

from relive.checkpoint.criu import CriuTools
from relive.checkpoint.criu_template import CriuTemplate
from relive.config import Settings
from relive.errors import BranchUnknown, ReliveError, RestoreFailed
from relive.model.branch import BranchFacts
from relive.model.commit import CommitId, Manifest, TargetKind
from relive.model.quantities import size
from relive.model.token_scope import Scope
from relive.operations.branch_memory import free_for_branches, memory_of
from relive.operations.forked_workers import in_forked_workers
from relive.operations.named import look_up_commit
from relive.operations.operation import Effect, Faces, Operation, Result, Route, Tool
from relive.operations.progress import Progress
from relive.operations.restoring import BranchParams, bring_to_life, report_differences
from relive.operations.targets import tend
from relive.sandbox.branch import find_branch, list_branches, sweep
from relive.store import Store

__all__ = [
    "MOST",
    "RESTORE_MANY",
    "BranchError",
    "ManyRestored",
    "OneOfMany",
    "RestoreManyParams",
    "restore_many",
]

MOST = 1000  # branches
_JOBS_FOR_EACH_CPU = 2  # a restore waits for the kernel almost half of its time (control groups, namespaces)


class RestoreManyParams(BranchParams):
    """As how many branches."""

    count: int = Field(ge=1, le=MOST, description="How many branches of it, side by side")
    jobs: int | None = Field(
        default=None, ge=1, le=64, description="Restores at one time; default: two for each CPU"
    )


class BranchError(Result):
    """Why a branch did not come to life, in the words of the error tree."""

    code: str
    message: str
    cause: str | None
    remedy: str | None


class OneOfMany(Result):
    """One of the branches; ``branch`` or ``error`` is there.

    Attributes:
        number: from 1 on; the branch is called as its service, with ``-NUMBER`` behind it.
    """

    number: int
    branch: BranchFacts | None = None
    error: BranchError | None = None


class ManyRestored(Result):
    """Those asked for, by their numbers; ``failed``: how many did not come to life; ``seconds``: until the last was there."""

    commit: CommitId
    branches: list[OneOfMany]
    failed: int
    seconds: float


def restore_many(settings: Settings, params: RestoreManyParams, progress: Progress) -> ManyRestored:
    """Bring a commit to life several times. One that fails does not fail the others.

    The first comes alone: what has to be read, made and checked for all of them is made for it. Each of the others comes only
    while this host has the memory for it: what the kernel would kill for want of memory may be the observed service.

    Raises:
        RefUnknown, RefAmbiguous, StoreError: the store does not know the commit.
    """
    tend(settings, progress)
    store = Store(settings.store)
    commit = store.resolve(params.ref)
    manifest = store.manifest(commit)
    began = time.monotonic()
    found: list[OneOfMany] = []
    settings = settings.model_copy(update={"mark": settings.mark or secrets.token_hex(16)})
    try:
        with (
            progress.progress("restoring", params.count) as done,
            contextlib.closing(_all(settings, store, commit, manifest, params, progress)) as made,
        ):
            for one in made:
                found.append(one)
                done(len(found))
    except BaseException:  # who gave up wants none of them; some may be there that nobody has heard of
        for branch in list_branches(settings):
            if branch.facts.mark == settings.mark:
                with contextlib.suppress(BranchUnknown):
                    branch.stop()
        raise
    seconds = time.monotonic() - began
    found.sort(key=lambda one: one.number)
    alive = [one.branch for one in found if one.branch is not None]
    if alive:
        report_differences(settings, Store(settings.store), manifest, alive[0], progress)
    return ManyRestored(commit=commit, branches=found, failed=len(found) - len(alive), seconds=seconds)


def _all(
    settings: Settings,
    store: Store,
    commit: CommitId,
    manifest: Manifest,
    params: RestoreManyParams,
    progress: Progress,
) -> Generator[OneOfMany, None, None]:
    jobs = params.jobs or _JOBS_FOR_EACH_CPU * (os.cpu_count() or 1)
    first = _one(settings, store, commit, params, manifest, 1)
    yield first
    store.close()  # its database is nothing for forked processes, which open their own
    with contextlib.ExitStack() as stack:
        template = _template(settings, first, manifest, params, progress, stack)
        yield from _others(settings, commit, params, manifest, jobs, template)


def _template(
    settings: Settings,
    first: OneOfMany,
    manifest: Manifest,
    params: RestoreManyParams,
    progress: Progress,
    stack: contextlib.ExitStack,
) -> CriuTemplate | None:
    """What shares the memory of the commit among all others; None where there are none, or it comes lazily, or for want of it."""
    if first.branch is None or params.lazy or params.count == 1:
        return None
    images = settings.branches / first.branch.id / "images"
    try:
        on_host = manifest.target.kind is not TargetKind.CONTAINER
        template = CriuTemplate(CriuTools(settings.tools_path), images, on_host=on_host)
    except (ReliveError, OSError) as error:
        progress.status(f"Each branch has its memory for itself: {error}.")
        return None
    if template.unshared is not None:
        progress.status(f"Each branch has changed pages of mapped files for itself: {template.unshared}.")
    return stack.enter_context(template)


def _others(
    settings: Settings,
    commit: CommitId,
    params: RestoreManyParams,
    manifest: Manifest,
    jobs: int,
    template: CriuTemplate | None,
) -> Generator[OneOfMany, None, None]:
    own: list[Store] = []
    memory = memory_of(manifest)

    def work(number: int) -> str:
        if not own:
            own.append(Store(settings.store))
        if (free := free_for_branches()) < memory * jobs:  # all workers look at the same moment
            return _failed(number, _too_little(number, memory, max(free, 0))).model_dump_json()
        return _one(settings, own[0], commit, params, manifest, number, template).model_dump_json()

    def stop_branch(line: str) -> None:
        _stop_branch(settings, OneOfMany.model_validate_json(line))

    others = in_forked_workers(range(2, params.count + 1), jobs, work, stop_branch, partial(sweep, settings))
    with contextlib.closing(others) as made:
        for number, line in made:
            yield OneOfMany.model_validate_json(line) if line is not None else _killed(number)


def _one(
    settings: Settings,
    store: Store,
    commit: CommitId,
    params: RestoreManyParams,
    manifest: Manifest,
    number: int,
    template: CriuTemplate | None = None,
) -> OneOfMany:
    name = f"{manifest.target.name}-{number}"
    try:
        branch = bring_to_life(settings, store, commit, params, name, template, manifest)
    except ReliveError as error:
        return _failed(number, error)
    except OSError as error:
        return _failed(number, _not_restored(number, str(error), "run `relive doctor`"))
    # What a replay would use of it is not needed here, and hundreds of descriptors would stay open.
    for descriptor in branch.peers.values():
        os.close(descriptor)
    branch.peers.clear()
    branch.ends.close()
    return OneOfMany(number=number, branch=branch.facts)


def _too_little(number: int, memory: int, free: int) -> RestoreFailed:
    return _not_restored(
        number,
        f"it would take {size(memory)} of memory, and this host has {size(free)} left for branches",
        "restore fewer, or end some of those that run with `relive stop`",
    )


def _killed(number: int) -> OneOfMany:
    return _failed(
        number,
        _not_restored(
            number,
            "the process that restored it was killed",
            "for want of memory, mostly: restore fewer, or with --lazy",
        ),
    )


def _not_restored(number: int, cause: str, remedy: str) -> RestoreFailed:
    return RestoreFailed(f"branch {number} was not restored", cause=cause, remedy=remedy)


def _failed(number: int, error: ReliveError) -> OneOfMany:
    return OneOfMany(number=number, error=BranchError.model_validate(error.as_json()))


def _stop_branch(settings: Settings, one: OneOfMany) -> None:
    if one.branch is not None:
        with contextlib.suppress(BranchUnknown):
            find_branch(settings, one.branch.id).stop()


RESTORE_MANY = Operation(
    "restore-many",
    RestoreManyParams,
    ManyRestored,
    restore_many,
    Faces(
        cli=("restore",),
        rest=Route(
            "POST",
            "/branches/many",
            frozenset({Scope.OPERATE}),
            "Bring a commit to life as many branches, each sealed for itself; one that fails does not fail the others",
            is_task=True,
        ),
        mcp=Tool(
            Effect.ADDS,
            "Bring a commit to life as many branches side by side, each in a sealed sandbox of its own; `branches` are in "
            "the order of their numbers, each with `branch` or `error`.",
            is_acting=True,
        ),
    ),
    look_up=look_up_commit,
)

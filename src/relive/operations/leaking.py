"""What a Python service keeps more and more of: asked in a branch of each of some commits."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pydantic import Field

from relive.config import Settings
from relive.errors import UsageError
from relive.incidents.report.masking import Mask
from relive.inspection.growth import (
    GrownCollection,
    GrownType,
    grown_collections,
    grown_types,
    kept_entries,
)
from relive.model.commit import CommitId, Manifest
from relive.model.token_scope import Scope
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store import Store

if TYPE_CHECKING:
    from relive.inspection.python.branches import AskedBranch

__all__ = ["LEAKS", "Leaks", "LeaksParams", "LeakyCommit", "leaks"]

_MOST_COLLECTIONS = 20_000
_MOST_ENTRIES = 20_000
_MOST_ADDRESSES = 100_000  # of a type in the first commit: of one with more nobody is told to hold it
_TOLD = 20  # types, and collections
_ASKED = 5  # of them, those of which entries or holders are asked
_KEPT = 3


class LeaksParams(Params):
    """Which commits are compared."""

    refs: list[str] = Field(
        min_length=3,
        max_length=10,
        description="Three commits of one service or more, earliest first: id, tag, NAME, or NAME@{2 minutes ago}",
    )
    process: int | None = Field(
        default=None,
        ge=1,
        le=1 << 22,
        description="Whose objects; its number inside. Without: the Python process that has loaded most of the service",
    )
    limit: float = Field(default=30.0, gt=0, le=300, description="Seconds for each question in a branch")


class LeakyCommit(Result):
    """One of the commits; ``objects`` and ``size`` are of all types together, size in bytes."""

    id: CommitId
    taken_wall_ns: int
    objects: int
    size: int


class Leaks(Result):
    """What each commit has more of than the one before; ``left_out``: so many types and collections were not told.

    Attributes:
        same_life: the commits are of one start of the service.
        types: of Python's objects, most bytes gained first; those that nobody but the interpreter makes are among them.
        collections: most entries gained first.
    """

    service: str
    same_life: bool
    commits: list[LeakyCommit]
    types: list[GrownType]
    collections: list[GrownCollection]
    left_out: int


def leaks(settings: Settings, params: LeaksParams, progress: Progress) -> Leaks:
    """Tell what a Python process had more of in each commit than in the one before; secrets are masked.

    What only grew need be no leak: a cache that fills does so, too. Garbage is collected before objects are counted.

    Raises:
        RefUnknown, RefAmbiguous, StoreError, RestoreFailed: a commit cannot be given back, or does not answer.
        UsageError: they are of different services, or in another order, or there is no Python process.
    """
    from relive.inspection.python.branches import asked_branch

    tend(settings, progress)
    store, mask = Store(settings.store), Mask.configured(settings)
    commits = [store.resolve(ref) for ref in params.refs]
    facts = [store.facts(commit) for commit in commits]
    _refuse_strangers([one.target.name for one in facts])
    _refuse_disorder([one.taken_wall_ns for one in facts])
    with contextlib.ExitStack() as branches:
        asked = [
            branches.enter_context(asked_branch(settings, store, commit, params.process, mask))
            for commit in commits
        ]
        found = [one.census(most=_MOST_COLLECTIONS, limit=params.limit) for one in asked]
        types, collections = grown_types(found), grown_collections(found)
        return Leaks(
            service=facts[-1].target.name,
            same_life=_is_one_life(facts),
            commits=[
                LeakyCommit(
                    id=commit,
                    taken_wall_ns=fact.taken_wall_ns,
                    objects=sum(count for count, _ in census.types.values()),
                    size=sum(size for _, size in census.types.values()),
                )
                for commit, fact, census in zip(commits, facts, found, strict=True)
            ],
            types=_with_holders(asked, types, params.limit, one_process=_is_one_life(facts)),
            collections=_with_entries(asked, collections, params.limit),
            left_out=max(0, len(types) - _TOLD) + max(0, len(collections) - _TOLD),
        )


def _look_up(settings: Settings, params: LeaksParams) -> None:
    store = Store(settings.store)
    for ref in params.refs:
        store.resolve(ref)


LEAKS = Operation(
    "leaks",
    LeaksParams,
    Leaks,
    leaks,
    Faces(
        cli=("leaks",),
        rest=Route(
            "POST",
            "/leaks",
            frozenset({Scope.OPERATE, Scope.MEMORY}),
            "Tell what a Python service keeps more and more of, from three commits or more",
            is_task=True,
        ),
        mcp=Tool(
            Effect.READS,
            "What a Python service keeps more and more of: types and collections that grew from each of three commits or more "
            "to the next, entries that stayed, and who holds them. Asked in throw-away branches.",
        ),
    ),
    look_up=_look_up,
)


def _refuse_strangers(names: Sequence[str]) -> None:
    if len(set(names)) > 1:
        raise UsageError(
            f"{', '.join(map(repr, dict.fromkeys(names)))} are different services",
            cause="only commits of one service have anything in common that could grow",
            remedy="`relive log NAME` lists the commits of one",
        )


def _refuse_disorder(times: Sequence[int]) -> None:
    if any(after <= before for before, after in pairwise(times)):
        raise UsageError(
            "the commits are not in the order in which they were taken",
            cause="what grew can be told only from earlier to later",
            remedy="name them earliest first; `relive log NAME` lists them newest first",
        )


def _is_one_life(facts: Sequence[Manifest]) -> bool:
    return len({one.target.life for one in facts}) == 1 and facts[0].target.life is not None


def _with_holders(
    asked: Sequence[AskedBranch], grown: Sequence[GrownType], limit: float, *, one_process: bool
) -> list[GrownType]:
    """Who holds what is new since the first commit: within one process an object is known by its address."""
    names = [one.name for one in grown[:_ASKED]]
    known = {one.name: "" for one in grown[:_ASKED] if not one.counts[0]}
    if one_process and asked[0].process == asked[-1].process:
        known |= asked[0].addresses(names, most=_MOST_ADDRESSES, limit=limit)
    told = [name for name in names if name in known]
    held = asked[-1].holders(told, known=known, limit=limit) if told else {}
    return [one.model_copy(update={"held_by": held.get(one.name)}) for one in grown[:_TOLD]]


def _with_entries(
    asked: Sequence[AskedBranch], grown: Sequence[GrownCollection], limit: float
) -> list[GrownCollection]:
    paths = [one.path for one in grown[:_ASKED]]
    if not paths:
        return []
    found = [
        one.entries(paths, collections=_MOST_COLLECTIONS, most=_MOST_ENTRIES, limit=limit) for one in asked
    ]
    return [
        one.model_copy(update={"kept": kept_entries([each.get(one.path, []) for each in found], _KEPT)})
        for one in grown[:_TOLD]
    ]

"""Repair: what is damaged or missing in the store is fetched from another one, what is derived is made anew."""

from __future__ import annotations

from pydantic import Field

from relive.config import Settings
from relive.maintenance.problems import Kind, Problem
from relive.maintenance.repair import Repaired as Found
from relive.maintenance.repair import repair as repair_store
from relive.maintenance.verify import verify
from relive.model.token_scope import Scope
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.remotes.healing import open_source
from relive.store import Store

__all__ = ["REPAIR", "RepairParams", "Repaired", "repair"]


class RepairParams(Params):
    """What is repaired, and from where."""

    refs: list[str] = Field(
        default=[], description="Commits to repair; all, and the tags, where none is named"
    )
    source: str | None = Field(
        default=None,
        description="What still has it: a store's directory, or a remote (s3://, file://); "
        "without it only what is derived is mended",
    )


class Fetched(Result):
    """A thing that was put in place."""

    kind: Kind
    name: str
    bytes: int


class Repaired(Result):
    """``renewed``: what was made anew, in words; ``fetched``: from the other store; ``left``: what is wrong still."""

    renewed: list[str]
    fetched: list[Fetched]
    left: list[Problem]


def repair(settings: Settings, params: RepairParams, progress: Progress) -> Repaired:
    """Read every byte, fetch what is damaged or missing, and make anew what is derived.

    Raises:
        RefUnknown, RefAmbiguous, UsageError: what is asked for cannot be meant.
        DiskFull, StoreError, ExchangeError: it could not go on; what was fetched before is in place.
    """
    store = Store(settings.store)
    commits = [store.resolve(ref) for ref in params.refs] if params.refs else None
    renewed = store.renew_derived()
    if params.source is not None:
        found = repair_store(store, open_source(params.source), commits, progress=progress.progress)
    else:
        found = Found([], verify(store, commits, data=True, progress=progress.progress).problems)
    return Repaired(
        renewed=renewed,
        fetched=[Fetched(kind=one.kind, name=one.name, bytes=one.bytes) for one in found.fetched],
        left=found.left,
    )


REPAIR = Operation(
    "repair",
    RepairParams,
    Repaired,
    repair,
    Faces(
        cli=("repair",),
        rest=Route(
            "POST",
            "/store/repairs",
            frozenset({Scope.HOST}),
            "Fetch what is damaged or missing from another store, and make anew what is derived",
            is_task=True,
        ),
        mcp=Tool(
            Effect.ADDS,
            "Fetch what is damaged or missing from another store that still has it, and make anew what is derived.",
            is_for_host=True,
        ),
    ),
)

"""The store as a whole: what it holds, whether it can be given back, what could go."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from pydantic import Field

from relive.checkpoint.uncompared import drop_spans, key_of
from relive.config import Settings
from relive.kernel.boot import boot_id
from relive.kernel.disk_errors import disk_errors
from relive.maintenance.garbage import Thing
from relive.maintenance.gc import GRACE, Collected, collect, foresee
from relive.maintenance.problems import Kind, Problem, Report
from relive.model.commit import CommitId
from relive.model.life_paths import LifePaths
from relive.model.token_scope import Scope
from relive.model.trial import TAG_PREFIX
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.sandbox.lazy.touched import drop_touched
from relive.store import Store

if TYPE_CHECKING:  # numpy takes its time
    from relive.maintenance.stats import StoreStats

__all__ = [
    "GC",
    "STATS",
    "VERIFY",
    "Garbage",
    "GcParams",
    "StatsParams",
    "StorageStats",
    "Verification",
    "VerifyParams",
    "gc",
    "stats",
    "verify",
]


class ServiceShare(Result):
    """``stored``: bytes of packs and objects that a service's commits need; what services share is counted for each.

    ``a_commit``: bytes by which a commit made the store grow, all in, on average; the oldest left out.
    """

    name: str
    commits: int
    logical: int
    stored: int
    a_commit: int


class CommitShare(Result):
    """``alone``: bytes that no other commit needs, so that dropping this one frees them."""

    id: CommitId
    name: str
    taken_wall_ns: int
    logical: int
    new: int
    alone: int


class StorageStats(Result):
    """What a store holds; see ``maintenance.stats.StoreStats``."""

    logical: int
    stored: int
    dominance: dict[str, int]
    services: list[ServiceShare]
    commits: list[CommitShare]

    @classmethod
    def of(cls, found: StoreStats) -> StorageStats:
        """From what ``maintenance`` measured."""
        return cls.model_validate(asdict(found))


class StatsParams(Params):
    """Nothing can be chosen."""


def stats(settings: Settings, _params: StatsParams, progress: Progress) -> StorageStats:
    """How much commits bring back, what they take, and what takes the room; raises StoreError."""
    from relive.maintenance.stats import measure

    return StorageStats.of(measure(Store(settings.store), progress=progress.progress))


STATS = Operation(
    "store-stats",
    StatsParams,
    StorageStats,
    stats,
    Faces(
        cli=("store stats",),
        rest=("GET /store/stats",),
        mcp=Tool(Effect.READS, "What the store holds and what takes the room."),
    ),
)


class Verification(Result):
    """What was looked at, and what is wrong; ``spoiled``: commits that cannot be given back."""

    commits: int
    packs: int
    objects: int
    bytes_read: int
    problems: list[Problem]
    spoiled: list[CommitId]

    @classmethod
    def of(cls, report: Report) -> Verification:
        """From what ``maintenance`` found."""
        return cls.model_validate({**asdict(report), "spoiled": report.spoiled})


class VerifyParams(Params):
    """What is checked."""

    refs: list[str] = Field(
        default=[],
        description="Commits to look at; all, tags, incidents and what is derived where none is named",
    )
    data: bool = Field(default=False, description="Read every byte, not only what leads to it")


def verify(settings: Settings, params: VerifyParams, progress: Progress) -> Verification:
    """Check signatures, hashes, and that all is there that commits need; raises RefUnknown, RefAmbiguous, StoreError."""
    from relive.maintenance.incident_check import comparison_problems, incident_problems, recording_problems
    from relive.maintenance.verify import verify as verify_store

    store = Store(settings.store)
    commits = [store.resolve(ref) for ref in params.refs] if params.refs else None
    report = verify_store(store, commits, data=params.data, progress=progress.progress)
    if commits is None:
        report.problems.extend(incident_problems(settings.incidents))
        report.problems.extend(comparison_problems(settings.home))
        report.problems.extend(recording_problems(settings.capsules) if params.data else ())
    return Verification.of(report)


VERIFY = Operation(
    "verify",
    VerifyParams,
    Verification,
    verify,
    Faces(
        cli=("verify",),
        rest=("POST /store/verifications",),
        mcp=Tool(
            Effect.READS, "Check that commits can be given back: signatures, hashes, and that all is there."
        ),
    ),
)


class Useless(Result):
    """Something that no commit needs."""

    kind: Kind
    name: str
    bytes: int


class Garbage(Result):
    """What was done, or would be; see ``maintenance.gc.Collected``. ``kept``: tags that keep the commits of kept states."""

    dry_run: bool
    freed: int
    deleted: list[Useless]
    condemned: list[Useless]
    waiting: list[Useless]
    repacked: list[str]
    doubtful: list[str]
    kept: list[str]

    @classmethod
    def of(cls, found: Collected, *, dry_run: bool, kept: list[str]) -> Garbage:
        """From what ``maintenance`` found."""

        def listed(things: list[Thing]) -> list[Useless]:
            return [Useless(kind=one.kind, name=one.name, bytes=found.sizes[one]) for one in things]

        return cls(
            dry_run=dry_run,
            freed=found.freed,
            deleted=listed(found.decision.delete),
            condemned=listed(found.decision.condemn),
            waiting=listed(found.decision.wait),
            repacked=found.repacked,
            doubtful=found.doubtful,
            kept=kept,
        )


class GcParams(Params):
    """How much may go."""

    grace: float = Field(
        default=GRACE,
        ge=0,
        description="Seconds for which something must have been useless before it is deleted",
    )
    dry_run: bool = Field(default=False, description="Only say what would go and what that would free")


def gc(settings: Settings, params: GcParams, progress: Progress) -> Garbage:
    """Free what no commit needs, or say what could be freed; never drops a commit. Raises StoreError."""
    act = foresee if params.dry_run else collect
    store = Store(settings.store)
    found = act(store, grace=params.grace, progress=progress.progress)
    if not params.dry_run:
        _drop_what_is_told_of_none(settings, store)
    kept = [name for name in store.tags() if name.startswith(TAG_PREFIX)]
    return Garbage.of(found, dry_run=params.dry_run, kept=kept)


def _drop_what_is_told_of_none(settings: Settings, store: Store) -> None:
    """What Relive's home says of commits that are gone: which were not compared (of ended lives), and what was touched."""
    written_before = time.time_ns() - int(GRACE * 1e9)
    open_lives = {
        path.name for path in settings.capsules.glob("*/*") if not LifePaths(path).closed.exists()
    }  # before the store is read: what ends meanwhile may add a commit
    if store.left_out():
        return  # of which lives they are is not known, and they may be repaired
    commits = store.log()
    with disk_errors("removing what is not needed", settings.home):
        drop_spans(
            settings.home,
            open_lives | {key_of(one.life, one.name) for one in commits},
            written_before,
            boot_id(),
        )
        drop_touched(settings.home, {one.id for one in commits})


GC = Operation(
    "gc",
    GcParams,
    Garbage,
    gc,
    Faces(
        cli=("gc",),
        # What it would free now is told by GET /store/garbage, for which `read` is enough.
        rest=Route(
            "POST",
            "/store/collections",
            frozenset({Scope.HOST}),
            "Free what no commit needs; never drops a commit",
            is_task=True,
        ),
        mcp=Tool(
            Effect.DESTROYS,
            "Free what no commit needs; never drops a commit. Begin with `dry_run`.",
            is_for_host=True,
        ),
    ),
)

"""Retention: old commits are dropped by a schedule. An agent does the same now and then for its own service."""

from __future__ import annotations

from functools import partial

from pydantic import Field

from relive.config import Settings
from relive.incidents.incidents import Incidents
from relive.maintenance.retention import Retention
from relive.maintenance.thinning import Thinning
from relive.model.token_scope import Scope
from relive.operations.commits import Commit
from relive.operations.operation import Effect, Faces, Operation, Params, Result, Route, Tool
from relive.operations.progress import Progress
from relive.sandbox.branch import branched_commits
from relive.store import Store

__all__ = ["RETAIN", "RetainParams", "Retained", "retain"]


class RetainParams(Params):
    """Which commits stay; the newest, tagged ones, those of incidents and of living branches always do."""

    service: str | None = Field(default=None, description="Only commits of this target; else of all")
    keep: int | None = Field(
        default=None, ge=1, description="The newest that stay in any case [setting: keep]"
    )
    minutes: int | None = Field(
        default=None,
        ge=0,
        description="Keep one of each of so many minutes [setting: keep_minutes]",
    )
    hours: int | None = Field(
        default=None, ge=0, description="Keep one of each of so many hours [setting: keep_hours]"
    )
    days: int | None = Field(
        default=None, ge=0, description="Keep one of each of so many days [setting: keep_days]"
    )
    months: int | None = Field(
        default=None, ge=0, description="Keep one of each of so many months [setting: keep_months]"
    )
    before_incident: int | None = Field(
        default=None,
        ge=0,
        description="Keep so many before each incident, and one of each of as many minutes [setting: keep_before_incident]",
    )
    dry_run: bool = Field(default=False, description="Only list what would be dropped")


class Retained(Result):
    """What was dropped, or would be, newest first of each target; ``kept``: how many stay."""

    dry_run: bool
    kept: int
    dropped: list[Commit]


def retain(settings: Settings, params: RetainParams, progress: Progress) -> Retained:
    """Drop old commits, keeping the newest and one of each of so many minutes, hours, days, months; raises StoreError."""
    store = Store(settings.store)
    branched = partial(branched_commits, settings)
    thinning = Thinning(_retention(settings, params), Incidents(settings.incidents), branched)
    lines = {line.id: line for line in store.log(params.service)}
    names = list(dict.fromkeys(line.name for line in lines.values()))
    act = thinning.doomed if params.dry_run else thinning.thin
    dropped = []
    with progress.progress("dropping", len(names)) as done:
        for number, name in enumerate(names, 1):
            dropped += [lines[one] for one in act(store, name) if one in lines]
            done(number)
    return Retained(
        dry_run=params.dry_run,
        kept=len(lines) - len(dropped),
        dropped=[Commit.of(line, []) for line in dropped],
    )


def _retention(settings: Settings, params: RetainParams) -> Retention:
    """As the params say, and where they say nothing, the configuration."""
    configured = Retention.configured(settings)
    return Retention(
        params.keep if params.keep is not None else configured.newest,
        params.minutes if params.minutes is not None else configured.minutes,
        params.hours if params.hours is not None else configured.hours,
        params.days if params.days is not None else configured.days,
        params.months if params.months is not None else configured.months,
        params.before_incident if params.before_incident is not None else configured.before_incident,
    )


RETAIN = Operation(
    "retain",
    RetainParams,
    Retained,
    retain,
    Faces(
        cli=("retain",),
        # Whoever may drop each commit by itself may drop old ones together.
        rest=Route(
            "POST",
            "/store/retentions",
            frozenset({Scope.OPERATE}),
            "Drop old commits by a schedule",
            is_task=True,
        ),
        mcp=Tool(
            Effect.DESTROYS,
            "Drop old commits by a schedule; begin with `dry_run`. The newest, tagged ones, those of incidents and branches stay.",
            is_for_host=True,
        ),
    ),
)

"""Committed targets: all that have commits, each with its commits added up."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import Field

from relive.config import Settings
from relive.model.commit import CommitId
from relive.operations.operation import Params, Result
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store import Store

__all__ = ["CommittedTarget", "CommittedTargetPage", "CommittedTargetsParams", "page_of_committed_targets"]


class CommittedTarget(Result):
    """The commits of a target together; see ``store.index.TargetLine`` for the fields."""

    name: str
    commits: int
    newest: CommitId
    newest_wall_ns: int
    oldest_wall_ns: int
    bytes: int
    new_bytes: int
    median_pause_us: int


class CommittedTargetsParams(Params):
    """Which targets."""

    after: int = Field(default=0, ge=0, description="`next` of the page before")
    limit: int = Field(default=50, ge=1, description="At most so many")


class CommittedTargetPage(Result):
    """Targets that have commits, that of the newest commit first, a page of them."""

    items: list[CommittedTarget]
    next: int | None


def page_of_committed_targets(
    settings: Settings, params: CommittedTargetsParams, progress: Progress
) -> CommittedTargetPage:
    """One page; raises StoreError."""
    tend(settings, progress)
    lines = Store(settings.store).targets()
    end = params.after + params.limit
    return CommittedTargetPage(
        items=[CommittedTarget(**asdict(one)) for one in lines[params.after : end]],
        next=end if end < len(lines) else None,
    )

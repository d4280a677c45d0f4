"""Commits: listing and showing them. They are taken in ``committing``, and deleted in ``deleting``."""

from __future__ import annotations

from dataclasses import fields

from pydantic import Field

from relive.checkpoint.suspect_captures import SuspectCaptures
from relive.checkpoint.uncompared import spans_of
from relive.config import Settings
from relive.errors import RefUnknown
from relive.model.commit import CommitId, Manifest, Trigger
from relive.operations.operation import Params, Result
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store import CommitQuery, Store, StoredCommit

__all__ = [
    "Commit",
    "CommitDetail",
    "CommitPage",
    "CommitsParams",
    "DamagedCommit",
    "page_of_commits",
    "show_commit",
    "tags_of",
]


class Commit(Result):
    """A commit in a list; see ``store.index.StoredCommit`` for the fields, ``tags``: names that it has."""

    id: CommitId
    name: str
    life: str | None
    kind: str
    root: int
    trigger: str
    taken_wall_ns: int
    sequence: int | None
    capture: str
    pause_us: int
    durable_us: int | None
    bytes: int
    new_bytes: int
    parent: CommitId | None
    tags: list[str] = Field(default=[])
    suspect: bool = Field(default=False, description="It may be wrong, and is not restored")
    damaged: bool = Field(default=False, description="Its manifest is damaged: it cannot be restored")

    @classmethod
    def of(
        cls, stored: StoredCommit, tags: list[str], *, suspect: bool = False, damaged: bool = False
    ) -> Commit:
        """From the index."""
        # ``asdict`` copies each value, which costs as much as finding the page.
        return cls(
            **{field.name: getattr(stored, field.name) for field in fields(stored)},
            tags=tags,
            suspect=suspect,
            damaged=damaged,
        )


class DamagedCommit(Result):
    """A commit that cannot be read, and what to do: the parts of the error that using it would raise."""

    id: CommitId
    code: str
    message: str
    cause: str | None
    remedy: str | None


class CommitDetail(Manifest):
    """All that a commit says of itself, and what the store knows of it."""

    id: CommitId
    durable_us: int | None
    bytes: int
    new_bytes: int
    tags: list[str] = Field(default=[])
    suspect: bool = Field(default=False, description="It may be wrong, and is not restored")
    uncompared: bool = Field(
        default=False,
        description="Of a micro-commit: what it believed was not compared with what is asked since then",
    )


class CommitsParams(Params):
    """Which commits; all that is given must hold."""

    target: str | None = Field(default=None, description="Only commits of this target")
    search: str | None = Field(
        default=None, description="Only with these words in the target's name or command line"
    )
    trigger: Trigger | None = Field(default=None, description="Only those that were taken because of this")
    tag: str | None = Field(default=None, description="Only the one with this tag")
    since_wall_ns: int | None = Field(
        default=None, ge=0, lt=1 << 63, description="Taken at or after this time"
    )
    until_wall_ns: int | None = Field(default=None, ge=0, lt=1 << 63, description="Taken before this time")
    after: str | None = Field(default=None, description="`next` of the page before")
    limit: int = Field(default=50, ge=1, description="At most so many")


class CommitPage(Result):
    """Commits, newest first, a page of them."""

    items: list[Commit]
    next: str | None
    damaged: list[DamagedCommit] = Field(
        default=[],
        description="Whose manifests cannot be read: of this page, and those that no page has, as nothing else says what they are",
    )


def page_of_commits(settings: Settings, params: CommitsParams, progress: Progress) -> CommitPage:
    """One page; what arrives or goes meanwhile shifts none of them. Raises UsageError, StoreError."""
    tend(settings, progress)
    store = Store(settings.store)
    query = CommitQuery(
        name=params.target,
        text=params.search,
        trigger=params.trigger,
        tag=params.tag,
        since_wall_ns=params.since_wall_ns,
        until_wall_ns=params.until_wall_ns,
    )
    names = tags_of(store)
    page = store.page(query, after=params.after, limit=params.limit)
    suspects = SuspectCaptures(settings.home)
    damaged = store.damaged(one.id for one in page.items)
    items = [
        Commit.of(
            one,
            names.get(one.id, []),
            suspect=suspects.is_any() and one.id not in damaged and _is_suspect(suspects, store, one),
            damaged=one.id in damaged,
        )
        for one in page.items
    ]
    return CommitPage(
        items=items,
        next=page.next,
        damaged=[
            DamagedCommit(
                id=commit_id, code=error.code, message=error.message, cause=error.cause, remedy=error.remedy
            )
            for commit_id, error in sorted((damaged | store.left_out()).items())
        ],
    )


def _is_suspect(suspects: SuspectCaptures, store: Store, commit: StoredCommit) -> bool:
    try:
        return suspects.is_suspect(store.facts(commit.id))
    except RefUnknown:  # it was dropped meanwhile
        return False
    except OSError:  # that cannot be read: nor is it restored
        return True


def _is_uncompared(settings: Settings, manifest: Manifest) -> bool:
    try:
        return any(not one.of_memory for one in spans_of(settings.home, manifest))
    except OSError:  # nothing says that it was
        return True


def show_commit(settings: Settings, ref: str) -> CommitDetail:
    """One commit in full; raises RefUnknown, RefAmbiguous, StoreError."""
    store = Store(settings.store)
    found = store.resolve(ref)
    stored = store.get(found)
    manifest = store.manifest(found)
    suspects = SuspectCaptures(settings.home)
    return CommitDetail(
        **dict(manifest),
        id=found,
        durable_us=stored.durable_us,
        bytes=stored.bytes,
        new_bytes=stored.new_bytes,
        tags=tags_of(store).get(found, []),
        suspect=suspects.is_any() and _is_suspect(suspects, store, stored),
        uncompared=_is_uncompared(settings, manifest),
    )


def tags_of(store: Store) -> dict[CommitId, list[str]]:
    """The tags of each commit that has any."""
    names: dict[CommitId, list[str]] = {}
    for tag, named in store.tags().items():
        names.setdefault(named, []).append(tag)
    return names

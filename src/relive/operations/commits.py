"""Commits: taking, listing, showing, deleting them."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from pathlib import Path

from pydantic import Field

from relive.agent.capsule import find_capsule
from relive.agent.containers.life import Watch, find_watch
from relive.agent.control import ask_agent
from relive.config import Settings, store_key_variable
from relive.engine.capture import capture
from relive.engine.criu import CriuTools
from relive.engine.docker.target import PREFIX as DOCKER
from relive.engine.docker.target import docker_target
from relive.engine.podman.commit import commit_container
from relive.engine.podman.container import find_container, parse_target
from relive.engine.podman.target import container_target
from relive.engine.target import process_target
from relive.engine.watchdog import Watchdog
from relive.errors import TargetUnknown, UsageError
from relive.model.capsule import LifePaths
from relive.model.commit import CommitId, Manifest, Trigger
from relive.model.text import is_number
from relive.operations.operation import Operation, Result, Wish
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store import CommitQuery, Store, StoredCommit
from relive.store.incidents import Incidents

__all__ = [
    "COMMIT",
    "Commit",
    "CommitDetail",
    "CommitPage",
    "CommitWish",
    "CommitsWish",
    "Deleted",
    "commit",
    "delete_commit",
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

    @classmethod
    def of(cls, stored: StoredCommit, tags: list[str]) -> Commit:
        """From the index."""
        # ``asdict`` copies each value, which costs as much as finding the page.
        return cls(**{field.name: getattr(stored, field.name) for field in fields(stored)}, tags=tags)


class CommitDetail(Manifest):
    """All that a commit says of itself, and what the store knows of it."""

    id: CommitId
    durable_us: int | None
    bytes: int
    new_bytes: int
    tags: list[str] = Field(default=[])


class CommitsWish(Wish):
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


def page_of_commits(settings: Settings, wish: CommitsWish, progress: Progress) -> CommitPage:
    """One page; what arrives or goes meanwhile shifts none of them. Raises UsageError, StoreError."""
    tend(settings, progress)
    store = Store(settings.store)
    query = CommitQuery(
        name=wish.target,
        text=wish.search,
        trigger=wish.trigger,
        tag=wish.tag,
        since_wall_ns=wish.since_wall_ns,
        until_wall_ns=wish.until_wall_ns,
    )
    names = tags_of(store)
    page = store.page(query, after=wish.after, limit=wish.limit)
    return CommitPage(items=[Commit.of(one, names.get(one.id, [])) for one in page.items], next=page.next)


class CommitWish(Wish):
    """What is committed."""

    target: str = Field(
        description="A capsule's name, podman:NAME for a container, or pid:NUMBER for any running tree"
    )
    files: list[Path] = Field(
        default=[], description="Files and directories committed too (pid: targets only)"
    )
    with_volumes: bool = Field(
        default=False, description="Commit what a container has mounted and can write to, as well"
    )
    with_image: bool = Field(default=False, description="Keep a container's image in the commit, as well")
    tag: str | None = Field(default=None, description="Give the commit this tag")


def commit(settings: Settings, wish: CommitWish, progress: Progress) -> Commit:
    """Commit the live state of a target, which runs on. The commit that carries ``settings.mark`` already is given as it is.

    Raises:
        UsageError: the target's text is none, or a file is not there.
        TargetUnknown, ProcessGone: there is no such target.
        CommitFailed: it was not committed; it runs on.
    """
    store = Store(settings.store)
    tend(settings, progress)
    marked = store.captured_as(settings.mark) if settings.mark is not None else None
    container = parse_target(wish.target)
    if container is None and (wish.with_volumes or wish.with_image):
        raise UsageError(
            "--with-volumes and --with-image are for podman: targets",
            cause=f"{wish.target} has neither volumes nor an image",
        )
    if marked is not None:
        stored = marked
    elif container is not None:
        if wish.files:
            raise _files_elsewhere("what a container changed in its files is always part of its commits")
        stored = _commit_container(settings, store, container, wish)
    elif wish.target.startswith(DOCKER):
        if wish.files:
            raise _files_elsewhere("what a container changed in its files is always part of its commits")
        stored = _commit_docker(settings, store, wish.target.removeprefix(DOCKER), wish)
    elif wish.target.startswith("pid:"):
        stored = _commit_process(settings, store, wish.target, wish.files)
    else:
        if wish.files:
            raise _files_elsewhere("a capsule's files are always part of its commits")
        stored = _ask_for_commit(settings, store, find_capsule(settings, wish.target).paths)
    if wish.tag is not None and store.tags().get(wish.tag) != stored.id:
        store.tag(wish.tag, stored.id)
    return Commit.of(stored, tags_of(store).get(stored.id, []))


COMMIT = Operation("commit", CommitWish, Commit, commit)


def _files_elsewhere(cause: str) -> UsageError:
    return UsageError("--files is for pid: targets", cause=cause)


def _commit_container(settings: Settings, store: Store, name: str, wish: CommitWish) -> StoredCommit:
    with contextlib.suppress(TargetUnknown):
        # Its agent's tracer has to step aside for CRIU.
        return _ask_watch(settings, store, find_watch(settings, f"podman:{name}"), wish)
    container = find_container(name)
    target = container_target(container, with_volumes=wish.with_volumes)
    with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
        return commit_container(
            container,
            target,
            Trigger.MANUAL,
            settings=settings,
            store=store,
            watchdog=watchdog,
            with_image=wish.with_image,
            name=settings.mark,
        )


def _commit_docker(settings: Settings, store: Store, name: str, wish: CommitWish) -> StoredCommit:
    with contextlib.suppress(TargetUnknown):
        return _ask_watch(settings, store, find_watch(settings, f"{DOCKER}{name}"), wish)
    target = docker_target(name)
    before = store.latest_of_life(target.life) if target.life is not None else None
    with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
        taken = capture(
            target, Trigger.MANUAL, settings=settings, store=store, watchdog=watchdog, name=settings.mark
        )
    return taken.store(store, [before.id] if before is not None else [])


def _ask_watch(settings: Settings, store: Store, watch: Watch, wish: CommitWish) -> StoredCommit:
    if wish.with_image or wish.with_volumes:
        raise UsageError(
            f"{watch.target} is watched, and its watch commits neither image nor volumes",
            cause="it commits often, and those are large",
            remedy=f"end the watch first: relive stop {watch.target}",
        )
    return _ask_for_commit(settings, store, watch.paths)


def _ask_for_commit(settings: Settings, store: Store, paths: LifePaths) -> StoredCommit:
    limit = settings.commit_limit * 3 + 60
    order = {"op": "commit", "capture": settings.mark} | store_key_variable()
    answer = ask_agent(paths.agent_socket, order, limit=limit)
    return store.get(CommitId(answer["id"]))


def _commit_process(settings: Settings, store: Store, target: str, files: list[Path]) -> StoredCommit:
    number = target.removeprefix("pid:")
    if not is_number(number):
        raise UsageError(
            f"{target!r} is no target", remedy="write pid:1234, podman:NAME, or a capsule's name"
        )
    for path in files:
        if not path.exists():
            raise UsageError(f"--files: there is no {path}", remedy="name an existing file or directory")
    wanted = process_target(int(number), [path.resolve() for path in files])
    with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
        taken = capture(
            wanted, Trigger.MANUAL, settings=settings, store=store, watchdog=watchdog, name=settings.mark
        )
    return taken.store(store, [])


def show_commit(settings: Settings, ref: str) -> CommitDetail:
    """One commit in full; raises RefUnknown, RefAmbiguous, StoreError."""
    store = Store(settings.store)
    found = store.resolve(ref)
    stored = store.get(found)
    return CommitDetail(
        **dict(store.manifest(found)),
        id=found,
        durable_us=stored.durable_us,
        bytes=stored.bytes,
        new_bytes=stored.new_bytes,
        tags=tags_of(store).get(found, []),
    )


class Deleted(Result):
    """A commit that is no more."""

    id: CommitId


def delete_commit(settings: Settings, ref: str) -> Deleted:
    """Delete a commit that nothing holds.

    Raises:
        RefUnknown, RefAmbiguous: there is none.
        UsageError: a tag or an incident holds it.
    """
    store = Store(settings.store)
    found = store.resolve(ref)
    incidents = Incidents(settings.incidents)
    # Asked with the store's lock held: no incident can begin to need it in between.
    if found not in store.thin(store.get(found).name, lambda _lines: {found} - incidents.pinned()):
        raise _held(found, tags_of(store).get(found, []))
    return Deleted(id=found)


def _held(commit_id: CommitId, tags: list[str]) -> UsageError:
    if tags:
        return UsageError(
            f"{commit_id[:10]} is kept",
            cause=f"it is tagged {', '.join(tags)}",
            remedy="remove the tag first: relive tag --delete NAME",
        )
    return UsageError(
        f"{commit_id[:10]} is kept",
        cause="an incident needs it to be replayed",
        remedy="`relive incidents` tells which; what belongs to incidents is never deleted",
    )


def tags_of(store: Store) -> dict[CommitId, list[str]]:
    """The tags of each commit that has any."""
    names: dict[CommitId, list[str]] = {}
    for tag, named in store.tags().items():
        names.setdefault(named, []).append(tag)
    return names

"""Taking a commit of a target, which runs on.

The engines are imported where one is needed: a capsule's agent takes its commits itself, so `relive commit NAME` needs none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from relive.agent.capsule.agent_process import agent_now, has_died
from relive.agent.capsule.lives import Capsule, find_capsule
from relive.agent.control.client import ask_agent
from relive.config import Settings, store_key_variable
from relive.containers.podman.container import find_container, parse_target
from relive.errors import AgentUnreachable, KeyMissing, TargetUnknown, UsageError
from relive.model.commit import CommitId, Trigger
from relive.model.life_paths import LifePaths
from relive.model.text import is_number
from relive.operations.branch_states import find_living
from relive.operations.commits import Commit, tags_of
from relive.operations.operation import Effect, Face, Faces, Only, Operation, Params, Tool
from relive.operations.progress import Progress
from relive.operations.respawning import tend_life
from relive.operations.targets import tend
from relive.sandbox.branch import Branch, list_branches
from relive.store import Store, StoredCommit
from relive.watching.life import Watch, find_watch

__all__ = ["COMMIT", "CommitParams", "TargetParams", "commit"]

_DOCKER = "docker:"
_TOLD = 5  # of files that are left out


class TargetParams(Params):
    """What is committed."""

    target: str = Field(
        max_length=512,
        description="A capsule's or watch's name, podman:NAME for a container, unit:NAME, pid:NUMBER for any running tree, "
        "or a branch's id: then its commit is the parent",
    )
    tag: str | None = Field(default=None, max_length=200, description="Give the commit this tag")


class CommitParams(TargetParams):
    """What is committed beside it, by who may name files of the host."""

    files: list[Path] = Field(
        default=[], description="Files and directories committed too (pid: targets only)"
    )
    with_volumes: bool = Field(
        default=False, description="Commit what a container has mounted and can write to, as well"
    )
    with_image: bool = Field(default=False, description="Keep a container's image in the commit, as well")


def commit(settings: Settings, params: CommitParams, progress: Progress) -> Commit:
    """Commit the live state of a target, which runs on. The commit that carries ``settings.mark`` already is given as it is.

    Raises:
        UsageError: the target's text is none, the tag is taken, or a file is not there.
        TargetUnknown, BranchUnknown, ProcessGone: there is no such target.
        CommitFailed: it was not committed; it runs on.
    """
    store = Store(settings.store)
    tend(settings, progress)
    marked = store.captured_as(settings.mark) if settings.mark is not None else None
    if params.tag is not None:
        store.check_tag(params.tag, marked.id if marked is not None else None, force=False)
    container = parse_target(params.target)
    if container is None and (params.with_volumes or params.with_image):
        raise UsageError(
            "--with-volumes and --with-image are for podman: targets",
            cause=f"{params.target} has neither volumes nor an image",
        )
    if marked is not None:
        stored = marked
    elif container is not None:
        if params.files:
            raise _files_elsewhere("what a container changed in its files is always part of its commits")
        stored = _commit_container(settings, store, container, params, progress)
    elif params.target.startswith(_DOCKER):
        if params.files:
            raise _files_elsewhere("what a container changed in its files is always part of its commits")
        stored = _commit_docker(settings, store, params.target.removeprefix(_DOCKER), params, progress)
    elif (watch := _service_watch(settings, params.target)) is not None:
        if params.files:
            raise _files_elsewhere(f"{watch.target} is watched, and its watch was told which files to hold")
        stored = _ask_for_commit(settings, store, watch.paths, progress)
    elif params.target.startswith("pid:"):
        stored = _commit_process(settings, store, params.target, params.files)
    else:
        if params.files:
            raise _files_elsewhere("a capsule's files are always part of its commits")
        stored = _commit_named(settings, store, params.target, progress)
    if params.tag is not None and store.tags().get(params.tag) != stored.id:
        store.tag(params.tag, stored.id)
    try:
        for path, reason in _left_out(store, stored)[:_TOLD]:
            progress.status(f"Not in the commit: {path} ({reason}).")
    except KeyMissing:
        progress.status("Whether it leaves files out cannot be told without the store key.")
    return Commit.of(stored, tags_of(store).get(stored.id, []))


def _left_out(store: Store, stored: StoredCommit) -> list[tuple[str, str]]:
    """Paths that it should hold and does not, with the reasons."""
    lines = [line for layer in store.manifest(stored.id).layers for line in layer.left_out]
    return [(f"/{path.lstrip('/')}", reason) for path, _, reason in (line.partition("\t") for line in lines)]


def _look_up(settings: Settings, params: CommitParams) -> None:
    of_an_engine = parse_target(params.target) is not None or params.target.startswith((_DOCKER, "pid:"))
    if not of_an_engine and _service_watch(settings, params.target) is None:
        _find_named(settings, params.target)


COMMIT = Operation(
    "commit",
    CommitParams,
    Commit,
    commit,
    Faces(
        cli=("commit",),
        rest=("POST /commits",),
        mcp=Tool(
            Effect.ADDS,
            "Commit the live state of a service, which runs on; it stands still for milliseconds.",
            is_acting=True,
        ),
        only=(
            Only(
                ("files", "with_volumes", "with_image"),
                frozenset({Face.CLI, Face.MCP}),
                "they name files of the host, or hold all that a container can write to",
            ),
        ),
    ),
    look_up=_look_up,
)


def _files_elsewhere(cause: str) -> UsageError:
    return UsageError("--files is for pid: targets", cause=cause)


def _commit_container(
    settings: Settings, store: Store, name: str, params: CommitParams, progress: Progress
) -> StoredCommit:
    with contextlib.suppress(TargetUnknown):
        # Its agent's tracer has to step aside for CRIU.
        return _ask_watch(settings, store, find_watch(settings, f"podman:{name}"), params, progress)
    from relive.checkpoint.criu import CriuTools
    from relive.checkpoint.watchdog import Watchdog
    from relive.containers.podman.commit import commit_container
    from relive.containers.podman.target import container_target

    container = find_container(name)
    target = container_target(container, settings, with_volumes=params.with_volumes)
    with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
        return commit_container(
            container,
            target,
            Trigger.MANUAL,
            settings=settings,
            store=store,
            watchdog=watchdog,
            with_image=params.with_image,
            name=settings.mark,
        )


def _commit_docker(
    settings: Settings, store: Store, name: str, params: CommitParams, progress: Progress
) -> StoredCommit:
    with contextlib.suppress(TargetUnknown):
        return _ask_watch(settings, store, find_watch(settings, f"{_DOCKER}{name}"), params, progress)
    from relive.checkpoint.criu import CriuTools
    from relive.checkpoint.dump import capture
    from relive.checkpoint.watchdog import Watchdog
    from relive.containers.docker.target import docker_target

    target = docker_target(name)
    before = store.latest_of_life(target.life) if target.life is not None else None
    with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
        taken = capture(
            target, Trigger.MANUAL, settings=settings, store=store, watchdog=watchdog, name=settings.mark
        )
    return taken.store(store, [before.id] if before is not None else [])


def _ask_watch(
    settings: Settings, store: Store, watch: Watch, params: CommitParams, progress: Progress
) -> StoredCommit:
    if params.with_image or params.with_volumes:
        raise UsageError(
            f"{watch.target} is watched, and its watch commits neither image nor volumes",
            cause="it commits often, and those are large",
            remedy=f"end the watch first: relive stop {watch.target}",
        )
    return _ask_for_commit(settings, store, watch.paths, progress)


def _ask_for_commit(settings: Settings, store: Store, paths: LifePaths, progress: Progress) -> StoredCommit:
    limit = settings.commit_limit * 3 + 60  # in which nothing moves; each commit before it has a watchdog
    order = {"op": "commit", "capture": settings.mark} | store_key_variable()
    with contextlib.ExitStack() as shown:
        stages: dict[str, Callable[[int], None]] = {}

        def hear(message: dict[str, Any]) -> None:
            what = str(message["what"])
            if what not in stages:
                shown.close()
                stages.clear()
                stages[what] = shown.enter_context(progress.progress(what, int(message["total"])))
            stages[what](int(message["done"]))

        ask = partial(ask_agent, paths.agent_socket, order, limit=limit, on_progress=hear)
        agent = agent_now(paths)
        try:
            answer = ask()
        except AgentUnreachable:
            if not has_died(paths, agent):
                raise
            # Killed just then, or with the request: a second commit, should the first have been made, harms nobody.
            tend_life(settings, paths.directory)
            answer = ask()
    return store.get(CommitId(answer["id"]))


def _commit_named(settings: Settings, store: Store, name: str, progress: Progress) -> StoredCommit:
    found = _find_named(settings, name)
    if isinstance(found, Capsule):
        return _ask_for_commit(settings, store, found.paths, progress)
    from relive.sandbox.branch_commit import commit_branch

    return commit_branch(settings, store, found)


def _find_named(settings: Settings, name: str) -> Capsule | Branch:
    """The running capsule of a name; where there is none, the branch of that id or unique beginning of one.

    Raises:
        TargetUnknown: there is neither. BranchUnknown: the branch has ended.
    """
    try:
        return find_capsule(settings, name)
    except TargetUnknown:
        if not any(branch.facts.id.startswith(name) for branch in list_branches(settings)):
            raise
    return find_living(settings, name)


def _service_watch(settings: Settings, target: str) -> Watch | None:
    """The watch that a process, unit or plain name means; None where it means none."""
    try:
        return find_watch(settings, target)
    except TargetUnknown:
        if target.startswith("unit:"):
            raise
        return None


def _commit_process(settings: Settings, store: Store, target: str, files: list[Path]) -> StoredCommit:
    number = target.removeprefix("pid:")
    if not is_number(number):
        raise UsageError(
            f"{target!r} is no target", remedy="write pid:1234, podman:NAME, or a capsule's name"
        )
    for path in files:
        if not path.exists():
            raise UsageError(f"--files: there is no {path}", remedy="name an existing file or directory")
    from relive.checkpoint.criu import CriuTools
    from relive.checkpoint.dump import capture
    from relive.checkpoint.target import process_target
    from relive.checkpoint.watchdog import Watchdog

    wanted = process_target(int(number), [path.resolve() for path in files])
    with Watchdog(CriuTools(settings.tools_path).watchdog) as watchdog:
        taken = capture(
            wanted, Trigger.MANUAL, settings=settings, store=store, watchdog=watchdog, name=settings.mark
        )
    return taken.store(store, [])

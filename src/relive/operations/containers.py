"""Containers' commits as containers of podman again. Little is imported here, since who restores waits for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from relive.config import Settings
from relive.containers.podman.restore.restoring import Revived, restore_container
from relive.model.addresses import parse_publication
from relive.model.token_scope import Scope
from relive.operations.grammars import each_written_as
from relive.operations.named import look_up_commit
from relive.operations.operation import Effect, Faces, Operation, Params, Route, Tool
from relive.operations.progress import Progress
from relive.store import Store

__all__ = ["RESTORE_AS_PODMAN", "ContainerParams", "restore_as_podman"]


class ContainerParams(Params):
    """A container's commit that podman shall run again."""

    ref: str = Field(description="A container's commit: id, tag, NAME, or NAME@{2 minutes ago}")
    name: str = Field(
        default="", description="What podman calls it; default: the original's name and its commit's"
    )
    publish: Annotated[list[str], each_written_as(parse_publication)] = Field(
        default=[], description="HOSTPORT:PORT: reach the container's port from this host"
    )
    share_volumes: bool = Field(
        default=False,
        description="Use what was mounted and not committed together with the original, instead of refusing",
    )


def restore_as_podman(settings: Settings, params: ContainerParams, _progress: Progress) -> Revived:
    """Bring a container's commit back as a container of podman, sealed.

    Raises:
        As ``containers.podman.restore.restoring.restore_container``.
    """
    wanted = [parse_publication(text) for text in params.publish]
    store = Store(settings.store)
    commit = store.resolve(params.ref)
    name = params.name or f"{store.get(commit).name}-{commit[:10]}"
    return restore_container(settings, store, commit, name, wanted, share_volumes=params.share_volumes)


RESTORE_AS_PODMAN = Operation(
    "restore-as-podman",
    ContainerParams,
    Revived,
    restore_as_podman,
    Faces(
        cli=("restore",),
        rest=Route(
            "POST",
            "/containers",
            frozenset({Scope.HOST}),
            "Bring a container's commit back as a container of podman, sealed",
            is_task=True,
        ),
        mcp=Tool(
            Effect.ADDS,
            "Bring a container's commit back as a container of podman on this host, sealed.",
            is_for_host=True,
        ),
    ),
    look_up=look_up_commit,
)

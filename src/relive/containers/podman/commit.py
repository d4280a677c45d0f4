"""Committing a container of podman: found, dumped, and made durable as a commit of its life."""

from __future__ import annotations

from pathlib import Path

from relive.checkpoint.dump import capture
from relive.checkpoint.request_gate import RequestGate
from relive.checkpoint.target import Target
from relive.checkpoint.watchdog import Watchdog
from relive.config import Settings
from relive.containers.archive.layout import IMAGE
from relive.containers.podman.command import ask
from relive.containers.podman.container import PodmanContainer
from relive.errors import CommitFailed
from relive.model.commit import FileEntry, LayerKind, Trigger
from relive.store import Store, StoredCommit

__all__ = ["commit_container"]


def commit_container(
    container: PodmanContainer,
    target: Target,
    trigger: Trigger,
    *,
    settings: Settings,
    store: Store,
    watchdog: Watchdog,
    with_image: bool = False,
    gate: RequestGate | None = None,
    name: str | None = None,
) -> StoredCommit:
    """Commit a container, which runs on; durable on return.

    Args:
        target: what ``container_target`` made of it; keep it, and the next commit copies only files that changed.
        with_image: the commit holds the image, too, so that it can be restored where that is not.

    Raises:
        As ``capture`` and ``Capture.store``.
    """
    before = store.latest_of_life(container.id)
    staging = store.stage() if with_image else None
    try:
        if staging is not None and target.contained is not None:
            held = _held_image(store, before, container.image_id)
            target.contained.members[IMAGE] = held or _saved_image(container, staging.files)
        taken = capture(
            target,
            trigger,
            settings=settings,
            store=store,
            watchdog=watchdog,
            gate=gate,
            name=name,
        )
        return taken.store(store, [before.id] if before is not None else [])
    finally:
        if staging is not None:
            staging.discard()


def _held_image(store: Store, before: StoredCommit | None, image: str) -> FileEntry | None:
    """The image as the commit before it holds it."""
    if before is None:
        return None
    manifest = store.manifest(before.id)
    if manifest.container is None or manifest.container.image_id != image:
        return None
    entries = [one for layer in manifest.layers if layer.kind is LayerKind.ARCHIVE for one in layer.entries]
    return next((one for one in entries if one.path == IMAGE), None)


def _saved_image(container: PodmanContainer, directory: Path) -> Path:
    target = directory / "image.tar"
    answer = ask("image", "save", "--quiet", "--format=oci-archive", "--output", target, container.image_id)
    if answer.status != 0:
        raise CommitFailed(
            f"the image of container {container.name} could not be saved",
            cause=f"podman says: {answer.said}",
            remedy="free space where RELIVE_HOME lies, or commit without --with-image",
        )
    return target

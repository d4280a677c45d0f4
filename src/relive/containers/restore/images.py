"""CRIU's images of a container, made fit for a branch."""

from __future__ import annotations

import shutil
from pathlib import Path

from relive.containers.archive.layout import image_name
from relive.containers.restore.specification import ContainerSpecification
from relive.errors import RestoreUnsupported
from relive.images.mounts import limit_mounts
from relive.images.shared_namespaces import forget_network_lock, networks_from_outside, unsupported_namespace
from relive.model.commit import CommitId
from relive.store import Store

__all__ = ["lay_out_large_images", "limit_container"]


def lay_out_large_images(store: Store, specification: ContainerSpecification, images: Path) -> None:
    """Those that an import did not take for images, since they are too large for a bundle."""
    for path, entry in specification.members.items():
        name = image_name(path)
        if name is not None and not (images / name).exists():
            shutil.copyfile(store.files.content_file(entry), images / name)


def limit_container(commit: CommitId, images: Path) -> list[str]:
    """Take from the images of a container by what it could act on the machine; what CRIU calls the networks it gets.

    Raises:
        RestoreUnsupported: it shared what a branch cannot have.
        ObjectCorrupt: an image is damaged.
    """
    reason = unsupported_namespace(images)
    if reason is not None:
        archive = "FILE.tar.zst"
        raise RestoreUnsupported(
            f"the commit {commit[:10]} is of a container that Relive cannot restore itself",
            cause=reason,
            remedy=f"`relive export {commit[:10]} {archive} --format podman`, then `podman container restore --import {archive}`",
        )
    limit_mounts(images)
    forget_network_lock(images)
    return networks_from_outside(images)

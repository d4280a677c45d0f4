"""What was mounted into a container, when it comes back: its own copy of what was committed, the host's where nobody writes."""

from __future__ import annotations

import tarfile
from pathlib import Path

from relive.containers.archive.changes import volume_archive
from relive.errors import RestoreUnsupported
from relive.model.commit import ContainerMount, FileEntry, LayerKind, Manifest
from relive.store import Store

__all__ = ["own_copies"]


def own_copies(
    store: Store, manifest: Manifest, mounts: list[ContainerMount], directory: Path, *, shared: bool
) -> dict[str, Path]:
    """Lay out committed volumes below a new ``directory``; returns where each lies, by its destination.

    Args:
        mounts: all that is mounted into the container.
        shared: what was not committed and can be written to is used together with the original.

    Raises:
        RestoreUnsupported: there is such a mount, and it is not ``shared``.
        ObjectMissing, ObjectCorrupt: a file of a volume is gone or damaged.
    """
    layers = {layer.point: layer for layer in manifest.layers if layer.kind is LayerKind.VOLUME}
    archived = {
        entry.path: entry
        for layer in manifest.layers
        if layer.kind is LayerKind.ARCHIVE
        for entry in layer.entries
    }
    found: dict[str, Path] = {}
    directory.mkdir()
    for number, mount in enumerate(mounts):
        target = directory / str(number)
        entry = archived.get(volume_archive(mount.volume)) if mount.volume else None
        if mount.destination in layers:
            target.mkdir()
            store.files.fill_with_layer(target, layers[mount.destination])
        elif entry is not None:
            target.mkdir()
            _unpack(store, entry, target)
        elif mount.writable and not shared:
            raise _would_share(manifest, mount)
        else:
            continue
        found[mount.destination] = target
    return found


def _unpack(store: Store, entry: FileEntry, target: Path) -> None:
    with tarfile.open(store.files.content_file(entry)) as tar:
        tar.extractall(target, filter="tar")


def _would_share(manifest: Manifest, mount: ContainerMount) -> RestoreUnsupported:
    what = f"volume {mount.volume}" if mount.volume else f"directory {mount.source}"
    return RestoreUnsupported(
        f"{manifest.target.name} would write to the same files as the original",
        cause=f"the {what} at {mount.destination} is not part of the commit",
        remedy="commit with --with-volumes; or restore with --share-volumes, if both may write there and its files are "
        "still those of the commit",
    )

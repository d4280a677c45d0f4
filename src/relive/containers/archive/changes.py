"""Files of a commit as the tars that a checkpoint archive has of them.

``rootfs-diff.tar``: what the container wrote over its image; ``devshm-checkpoint.tar``: its ``/dev/shm``; ``volumes/NAME.tar``: a
volume. What it deleted stands in ``deleted.files``, which a commit holds as it is.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

from relive.errors import ObjectCorrupt
from relive.model.commit import EntryKind, FileEntry, Layer, LayerKind, Manifest

__all__ = ["DEV_SHM", "ROOT_CHANGES", "VOLUMES", "changed_files", "layer_archives", "volume_archive"]

ROOT_CHANGES, DEV_SHM = "rootfs-diff.tar", "devshm-checkpoint.tar"
VOLUMES = "volumes/"
_XATTR = "SCHILY.xattr."
# CRIU makes the names of unix sockets anew as it binds them.
_TYPES = {
    EntryKind.FILE: tarfile.REGTYPE,
    EntryKind.DIRECTORY: tarfile.DIRTYPE,
    EntryKind.LINK: tarfile.SYMTYPE,
    EntryKind.PIPE: tarfile.FIFOTYPE,
}


def volume_archive(volume: str) -> str:
    """Where an archive has a volume's files."""
    return f"{VOLUMES}{volume}.tar"


def layer_archives(manifest: Manifest) -> dict[str, Layer]:
    """Which member of an archive each layer of a container's files becomes.

    A directory of the host that was committed with its container becomes none: podman has no place for it.
    """
    assert manifest.container is not None
    volumes = {one.destination: one.volume for one in manifest.container.mounts if one.volume}
    found = {}
    for layer in manifest.layers:
        match layer.kind:
            case LayerKind.OVERLAY if layer.point == "/":
                found[ROOT_CHANGES] = layer
            case LayerKind.TMPFS if layer.point == "/dev/shm":
                found[DEV_SHM] = layer
            case LayerKind.VOLUME if layer.point in volumes:
                found[volume_archive(volumes[layer.point])] = layer
    return found


def changed_files(layer: Layer, copy_of: Callable[[FileEntry], Path], target: Path) -> None:
    """Write a layer as a new tar.

    Args:
        copy_of: where the content of a file lies.

    Raises:
        ObjectCorrupt: an entry names a path outside of it.
        OSError: it could not be written.
    """
    with target.open("xb") as file, tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry in layer.entries:
            if entry.kind not in _TYPES:
                continue
            info = _described(entry)
            if entry.kind is EntryKind.FILE:
                with copy_of(entry).open("rb") as content:
                    tar.addfile(info, content)
            else:
                tar.addfile(info)


def _described(entry: FileEntry) -> tarfile.TarInfo:
    if entry.path.startswith("/") or ".." in entry.path.split("/"):
        raise ObjectCorrupt(
            f"the commit names a file {entry.path!r}",
            cause="such a path leads out of its directory",
            remedy="do not trust this commit",
        )
    info = tarfile.TarInfo(entry.path)
    info.type = _TYPES[entry.kind]
    info.mode, info.uid, info.gid = entry.mode, entry.uid, entry.gid
    info.mtime = entry.mtime_ns / 1e9
    info.size = entry.size if entry.kind is EntryKind.FILE else 0
    info.linkname = entry.link or ""
    info.pax_headers = _attributes(entry.attributes)
    return info


def _attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    return {
        f"{_XATTR}{name}": bytes.fromhex(value).decode("utf-8", "surrogateescape")
        for name, value in attributes.items()
    }

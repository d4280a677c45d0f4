"""Making the root file system of a container's branch from its commit, as far as nothing has to be mounted yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from blake3 import blake3

from relive.config import Settings
from relive.containers.restore.binds import SHARED_MEMORY, MountContents
from relive.containers.restore.changes import delete_files, deleted_paths, likeness_of, unpack_tar
from relive.containers.restore.container_root import ContainerRoot
from relive.containers.restore.image import image_layers
from relive.containers.restore.specification import ContainerSpecification, read_specification
from relive.model.branch import MissingFile
from relive.model.commit import CommitId, Layer, LayerKind, Manifest
from relive.sandbox.committed_numbers import committed_numbers
from relive.store import Store

__all__ = ["make_container_root"]

_CHANGES, _DELETED = "rootfs-diff.tar", "deleted.files"
_SHARED_MEMORY, _VOLUMES = "devshm-checkpoint.tar", "volumes/"  # of podman


def make_container_root(
    settings: Settings, store: Store, commit: CommitId, manifest: Manifest, directory: Path
) -> ContainerRoot:
    """The root file system of a branch that has the given directory.

    Raises:
        ImageUnavailable: the container's image is not here.
        RestoreFailed: what its engine had set up is not told.
        ObjectMissing, ObjectCorrupt: something of the commit is gone or damaged.
    """
    specification = read_specification(store, manifest)
    image = image_layers(store, commit, specification)
    return ContainerRoot(
        directory=directory,
        tools=settings.tools_path,
        specification=specification,
        layers=[_changes(store, manifest, specification, image), *image],
        contents=_contents(store, manifest, specification),
        inode_numbers=_own_numbers(manifest, committed_numbers(store, commit, manifest)),
        missing_files=_missing(manifest),
        store=store,
    )


def _changes(
    store: Store, manifest: Manifest, specification: ContainerSpecification, image: list[Path]
) -> Path:
    """The layer of what the container had changed in its root file system: taken by Relive itself, or by its engine."""
    for layer in manifest.layers:
        if layer.kind is LayerKind.OVERLAY and layer.point == "/":
            return store.files.lay_out_layer(layer)
    like = likeness_of(image)
    changed, deleted = specification.members.get(_CHANGES), specification.members.get(_DELETED)

    def make(target: Path) -> None:
        top = image[0].stat()
        target.chmod(top.st_mode & 0o7777)
        if changed is not None:
            unpack_tar(store.files.content_file(changed), target, like)
        if deleted is not None:
            delete_files(deleted_paths(store.files.content(deleted)), target, like)

    parts = (str(one.object) if one is not None else "" for one in (changed, deleted))
    return store.files.lay_out_tree(_name("changes", *parts, *map(str, image)), make)


def _contents(store: Store, manifest: Manifest, specification: ContainerSpecification) -> MountContents:
    """What was in /dev/shm and in volumes, where the commit holds that."""
    found = {}
    destinations = {bind.volume: bind.destination for bind in specification.binds.values() if bind.volume}
    for path in specification.members:
        name = path.removeprefix(_VOLUMES).removesuffix(".tar")
        if path == f"{_VOLUMES}{name}.tar" and name in destinations:
            found[destinations[name]] = _tree(store, specification, path)
    if _SHARED_MEMORY in specification.members:
        found[SHARED_MEMORY] = _tree(store, specification, _SHARED_MEMORY)
    for layer in manifest.layers:
        if layer.kind == "volume" or (layer.kind is LayerKind.TMPFS and layer.point == SHARED_MEMORY):
            found[layer.point] = store.files.lay_out_layer(layer)
    over = {layer.point: store.files.lay_out_layer(layer) for layer in _over_mounts(manifest)}
    return MountContents(found, over)


def _over_mounts(manifest: Manifest) -> list[Layer]:
    """Layers of the open files of volumes."""
    return [layer for layer in manifest.layers if layer.kind is LayerKind.OVERLAY and layer.point != "/"]


def _own_numbers(manifest: Manifest, numbers: Mapping[str, int]) -> dict[str, int]:
    """Those of files in the root file system itself."""
    tops = tuple(f"{layer.point}/" for layer in _over_mounts(manifest))
    return {path: number for path, number in numbers.items() if not path.startswith(tops)}


def _missing(manifest: Manifest) -> list[MissingFile]:
    lines = [line.partition("\t") for layer in _over_mounts(manifest) for line in layer.left_out]
    return [MissingFile(path=f"/{path}", reason=reason) for path, _, reason in lines]


def _tree(store: Store, specification: ContainerSpecification, path: str) -> Path:
    entry = specification.members[path]

    def make(target: Path) -> None:
        unpack_tar(store.files.content_file(entry), target, lambda _: None)

    return store.files.lay_out_tree(_name("tree", str(entry.object)), make)


def _name(*parts: str) -> str:
    return blake3("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()

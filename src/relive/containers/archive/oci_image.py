"""Writing a container's commit as an OCI image, for registries and engines: its only layer is the checkpoint archive.

The file is an OCI image layout (image-spec, ``image-layout.md``) in a tar, which `podman load`, `skopeo copy oci-archive:FILE` and
`ctr images import` read. By the annotations of its manifest an engine knows that it is a checkpoint, and of which container:
``org.criu.checkpoint.container.name`` (containerd, CRI-O since 1.34), ``io.kubernetes.cri-o.annotations.checkpoint.name`` (CRI-O),
``io.podman.annotations.checkpoint.name`` with ``...runtime.name`` (podman). CRI-O and containerd restore only what was committed in
a pod of theirs (their annotations must be in ``spec.dump``), podman what was podman's.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from relive.containers.archive.compression import Compression, packing
from relive.containers.archive.exporting import ArchiveChanges, write_checkpoint
from relive.containers.archive.tar_files import Member, entry_header, fill, the_end
from relive.errors import UsageError
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import CommitId, Manifest
from relive.remotes.exporting import Exported, writing
from relive.remotes.parallel import Show
from relive.store import Store

__all__ = ["annotations_of", "export_image", "image_name_of"]

_CHUNK = 1 << 20  # [bytes]
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_LAYER_KINDS = {
    Compression.NONE: _LAYER,
    Compression.GZIP: f"{_LAYER}+gzip",
    Compression.ZSTD: f"{_LAYER}+zstd",
}
_CONFIG_KIND = "application/vnd.oci.image.config.v1+json"
_MANIFEST_KIND = "application/vnd.oci.image.manifest.v1+json"
_INDEX_KIND = "application/vnd.oci.image.index.v1+json"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # as Go calls them
_MODE = 0o644


def export_image(
    store: Store, commit_id: CommitId, target: Path, compression: Compression, *, force: bool, show: Show
) -> Exported:
    """Write the image, which is there whole and durable on return, or not at all.

    Args:
        compression: of its layer; the file itself is a tar.
        force: replace a file that exists.

    Raises:
        UsageError: the file exists, its directory does not, or the commit is of no container.
        RefUnknown, StoreError: the commit cannot be read.
        DiskFull: the file could not be written.
    """
    manifest = store.manifest(commit_id)
    if manifest.container is None:
        raise _no_container(manifest)
    staging = store.stage()
    try:
        with store.transfers.hold(commit_id) as outgoing, writing(target, force=force) as fresh:
            store.images.lay_out(manifest, staging.images)
            with disk_errors("writing an image", staging.directory):
                plain, packed = staging.files / "layer.tar", staging.files / "layer.blob"
                write_checkpoint(manifest, staging, outgoing, plain, ArchiveChanges())
                with show(f"Exporting {commit_id[:10]}", plain.stat().st_size) as done:
                    inner, outer = _pack(plain, packed, compression, done)
                plain.unlink()
            blobs = _described(commit_id, manifest, compression, inner, outer, packed.stat().st_size)
            count = _write_layout(fresh.write, manifest, blobs, outer, packed)
            return Exported(commit_id, count, fresh.size)
    finally:
        staging.discard()


def _no_container(manifest: Manifest) -> UsageError:
    return UsageError(
        f"{manifest.target.name} is no container, so no engine could restore an image of it",
        cause="a checkpoint needs the container's image and OCI configuration, and a "
        f"{'capsule' if manifest.target.life else 'process'} has neither",
        remedy="`relive export` without --format writes a file that `relive import` and `relive restore` take",
    )


def _pack(
    plain: Path, packed: Path, compression: Compression, done: Callable[[int], None]
) -> tuple[str, str]:
    """Compress the layer; (SHA-256 of its tar, SHA-256 of what was written)."""
    inner, outer = hashlib.sha256(), hashlib.sha256()
    with packed.open("xb") as target:

        def write_packed(data: bytes) -> None:
            outer.update(data)
            target.write(data)

        with packing(write_packed, compression) as write:
            for chunk in _chunks(plain):
                inner.update(chunk)
                write(chunk)
                done(len(chunk))
    return inner.hexdigest(), outer.hexdigest()


def annotations_of(manifest: Manifest) -> dict[str, str]:
    """By which engines know that an image is a checkpoint, and tell of it; what is not known is left out."""
    facts = manifest.container
    assert facts is not None
    name = manifest.target.name
    # What Relive took itself is podman's; an archive that was imported says whose it is.
    found = {
        "org.criu.checkpoint.container.name": name,
        "org.criu.checkpoint.engine.name": facts.engine,
        "org.criu.checkpoint.rootfsImageName": facts.image,
        "org.criu.checkpoint.runtime.name": facts.runtime,
        "org.criu.checkpoint.criu.version": _known(manifest.host.criu),
        "org.criu.checkpoint.host.kernel": _known(manifest.host.kernel),
        "org.criu.checkpoint.host.arch": _architecture(manifest),
        "io.kubernetes.cri-o.annotations.checkpoint.name": name,
        "io.kubernetes.cri-o.annotations.checkpoint.rootfsImageName": facts.image,
        "io.podman.annotations.checkpoint.name": name,
        "io.podman.annotations.checkpoint.rootfs-image-name": facts.image,
        "io.podman.annotations.checkpoint.runtime.name": facts.runtime,
    }
    return {key: value for key, value in found.items() if value}


def _known(text: str) -> str:
    return "" if text == "unknown" else text


def _architecture(manifest: Manifest) -> str:
    machine = manifest.host.machine or platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def image_name_of(commit_id: CommitId, manifest: Manifest) -> str:
    """The name that the image gets when it is loaded: names of images know no capitals, and few signs."""
    plain = re.sub(r"[^a-z0-9]+", "-", manifest.target.name.lower()).strip("-") or "container"
    return f"localhost/relive-checkpoint/{plain}:{commit_id[:12]}"


def _described(
    commit_id: CommitId, manifest: Manifest, compression: Compression, inner: str, outer: str, size: int
) -> dict[str, bytes]:
    """Members of the layout but for the layer, in their order."""
    created = datetime.fromtimestamp(manifest.taken_wall_ns / 1e9, UTC).isoformat().replace("+00:00", "Z")
    architecture = _architecture(manifest)
    config = _json(
        {
            "created": created,
            "architecture": architecture,
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{inner}"]},
            "history": [{"created": created, "created_by": f"relive export {commit_id}"}],
        }
    )
    image = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_KIND,
            "config": _descriptor(_CONFIG_KIND, config),
            "layers": [{"mediaType": _LAYER_KINDS[compression], "digest": f"sha256:{outer}", "size": size}],
            "annotations": annotations_of(manifest),
        }
    )
    about = {
        "platform": {"architecture": architecture, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": image_name_of(commit_id, manifest)},
    }
    index = {
        "schemaVersion": 2,
        "mediaType": _INDEX_KIND,
        "manifests": [_descriptor(_MANIFEST_KIND, image) | about],
    }
    return {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        _blob(hashlib.sha256(image).hexdigest()): image,
        _blob(hashlib.sha256(config).hexdigest()): config,
    }


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    return {
        "mediaType": kind,
        "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
        "size": len(content),
    }


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _write_layout(
    write: Callable[[bytes], object], manifest: Manifest, members: dict[str, bytes], layer: str, packed: Path
) -> int:
    """Write the tar; returns how many files are in it."""
    time_ns = manifest.taken_wall_ns

    def put(path: str, size: int, chunks: Iterator[bytes]) -> None:
        write(entry_header(Member(path, False, size, _MODE, 0, 0, time_ns)))
        for chunk in chunks:
            write(chunk)
        write(fill(size))

    for directory in ("blobs", "blobs/sha256"):
        write(entry_header(Member(directory, True, 0, 0o755, 0, 0, time_ns)))
    for path, content in members.items():
        put(path, len(content), iter([content]))
    put(_blob(layer), packed.stat().st_size, _chunks(packed))
    write(the_end())
    return len(members) + 1


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk

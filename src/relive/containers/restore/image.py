"""The root file system of a container's image: directories to be laid over each other, topmost first.

From podman's storage, where an image of that very id is there, or from an image that the commit holds. An id is a hash of the
image's configuration, and that names its layers by their hashes; so an image of the same id has the same files, whatever it is
called by now.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import zlib
from functools import partial
from pathlib import Path
from typing import IO, Any

from blake3 import blake3

from relive.containers.restore.changes import unpack_layer
from relive.containers.restore.specification import ContainerSpecification
from relive.errors import ImageUnavailable, ObjectCorrupt
from relive.model.commit import CommitId
from relive.store import Store

__all__ = ["IMAGE_MEMBER", "image_layers"]

IMAGE_MEMBER = "relive/image.tar"
"""Member of a commit that holds its image: an OCI archive, as `podman save --format oci-archive` writes it."""

_LIMIT = 60.0  # [s]
_JSON_MOST = 16 << 20  # [bytes]
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_LAYERS_MOST = 500  # overlayfs takes no more


def image_layers(store: Store, commit: CommitId, specification: ContainerSpecification) -> list[Path]:
    """Where the image's files are; they are only to be read.

    Raises:
        ImageUnavailable: it is gone, another one has its name now, or its storage is of a kind that is not understood.
        ObjectMissing, ObjectCorrupt: the commit's own image is gone or damaged.
    """
    entry = specification.members.get(IMAGE_MEMBER)
    if entry is not None:
        archive = store.files.content_file(entry)
        assert entry.object is not None
        return _held_layers(store, archive, entry.object, specification.image)
    return _podman_layers(commit, specification)


# -- in podman's storage --------------------------------------------------------------------------------------------


def _podman_layers(commit: CommitId, specification: ContainerSpecification) -> list[Path]:
    what = f"the commit {commit[:10]} is of a container, and its image is not here"
    wanted = f"{specification.image_name or 'an image without a name'} ({specification.image[:12] or 'of an unknown id'})"
    if shutil.which("podman") is None:
        raise ImageUnavailable(
            what,
            cause=f"it needs {wanted}, and there is no podman in PATH that could have it",
            remedy="install podman and load the image, or commit with --with-image",
        )
    if not specification.image:
        raise ImageUnavailable(
            what,
            cause="its archive does not tell the image's id, so it could not be known for the same",
            remedy="restore it with the engine that it was made with",
        )
    found = _inspect(specification.image)
    if found is None:
        raise _gone(what, wanted, specification)
    driver = found.get("GraphDriver") or {}
    layers = []
    if driver.get("Name") == "vfs":
        layers = [_whole_directory(specification.image)]
    elif driver.get("Name") == "overlay":
        layers = _directories(driver.get("Data") or {})
    if not layers or not all(one.is_dir() for one in layers):
        raise ImageUnavailable(
            f"the files of the image {wanted} cannot be reached",
            cause=f"podman keeps it with the driver {driver.get('Name')!r}, and tells of no directories with its files",
            remedy="use podman's storage driver overlay or vfs",
        )
    return layers


def _directories(data: dict[str, Any]) -> list[Path]:
    lower = data.get("LowerDir") or ""
    return [Path(one) for one in (data.get("UpperDir") or "", *lower.split(":")) if one]


def _whole_directory(image: str) -> Path:
    """Where the driver vfs, which does not tell it otherwise, has an image; it stays there without being mounted."""
    mounted = _ask("mount", image)
    _ask("unmount", image)
    if mounted.returncode != 0:
        raise _unasked(mounted.stderr)
    return Path(mounted.stdout.decode(errors="replace").strip())


def _gone(what: str, wanted: str, specification: ContainerSpecification) -> ImageUnavailable:
    namesake = _inspect(specification.image_name) if specification.image_name else None
    if namesake is not None:
        return ImageUnavailable(
            f"{what}: another one has its name now",
            cause=f"it needs {wanted}; {specification.image_name} is {str(namesake.get('Id'))[:12]} now, with other files",
            remedy="load the image that it was made with (`podman load`, `podman pull NAME@DIGEST`), or commit with --with-image",
        )
    return ImageUnavailable(
        what,
        cause=f"it needs {wanted}, which podman does not have",
        remedy=f"`podman pull` or `podman load` it ({specification.image_name or specification.image[:12]}), "
        "or commit with --with-image",
    )


def _inspect(image: str) -> dict[str, Any] | None:
    """What podman knows of an image, in the storage that the caller's environment names; None where it has none."""
    if image.startswith("-"):
        return None
    done = _ask("inspect", image)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").lower()
        if "no such" in words or "not known" in words:
            return None
        raise _unasked(done.stderr)
    try:
        (found,) = json.loads(done.stdout)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _ask(order: str, image: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["podman", "image", order, image],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT,
            check=False,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unasked(str(error).encode()) from error


def _unasked(words: bytes) -> ImageUnavailable:
    lines = words.decode(errors="replace").strip().splitlines()
    return ImageUnavailable(
        "podman cannot be asked for an image",
        cause=lines[-1] if lines else "it says nothing",
        remedy="see what `podman images` says",
    )


# -- in the commit --------------------------------------------------------------------------------------------------


def _held_layers(store: Store, archive: Path, name: str, image: str) -> list[Path]:
    try:
        with tarfile.open(archive) as file:
            reader = _OciArchive(file)
            config, digests = reader.image()
            if image and config != image:
                raise ValueError(f"it is the image {config[:12]}, not {image[:12]}")
            found = []
            for digest in digests:
                key = blake3(f"image layer {name} {digest}".encode()).hexdigest()
                found.append(store.files.lay_out_tree(key, partial(reader.unpack, digest)))
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError, zlib.error) as error:
        raise ObjectCorrupt(
            "the image that the commit holds is damaged",
            cause=str(error),
            remedy="load the image into podman and commit again",
        ) from error
    return found[::-1]


class _OciArchive:
    """``index.json`` names a manifest, that a configuration and layers, from the bottom; each lies at ``blobs/sha256/``."""

    def __init__(self, file: tarfile.TarFile) -> None:
        self._file = file

    def image(self) -> tuple[str, list[str]]:
        """The image's id, and the digests of its layers; raises ValueError, KeyError, TypeError for what is none."""
        (only,) = self._json("index.json")["manifests"]
        manifest = json.loads(self._blob(_digest(only)))
        layers = [_digest(one) for one in manifest["layers"]]
        if not 0 < len(layers) <= _LAYERS_MOST:
            raise ValueError(f"it has {len(layers)} layers")
        return _digest(manifest["config"]), layers

    def unpack(self, digest: str, target: Path) -> None:
        """Unpack one layer; raises ValueError where its content is not what its name says."""
        blob = target.with_name(target.name + ".blob")
        hasher = hashlib.sha256()
        try:
            with self._open(f"blobs/sha256/{digest}") as source, blob.open("wb") as file:
                while data := source.read(1 << 20):
                    hasher.update(data)
                    file.write(data)
            if hasher.hexdigest() != digest:
                raise ValueError(f"the layer {digest[:12]} has other content than its name says")
            unpack_layer(blob, target)
        finally:
            blob.unlink(missing_ok=True)

    def _json(self, name: str) -> dict[str, Any]:
        with self._open(name) as file:
            found: dict[str, Any] = json.loads(file.read(_JSON_MOST))
        return found

    def _blob(self, digest: str) -> bytes:
        with self._open(f"blobs/sha256/{digest}") as file:
            data = file.read(_JSON_MOST)
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError(f"the part {digest[:12]} has other content than its name says")
        return data

    def _open(self, name: str) -> IO[bytes]:
        content = self._file.extractfile(name)
        if content is None:
            raise ValueError(f"{name} is no file")
        return content


def _digest(value: dict[str, Any]) -> str:
    match = _DIGEST.fullmatch(value["digest"])
    if match is None:
        raise ValueError("a part has no name by SHA-256")
    return match[1]

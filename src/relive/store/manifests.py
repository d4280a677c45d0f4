"""Manifests: canonical JSON, each named by the BLAKE3 of its bytes, which is the commit's id."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from relive.errors import ObjectCorrupt, RefUnknown
from relive.kernel.atomic_write import sync_directory
from relive.model.commit import MANIFEST_VERSION, CommitId, Manifest
from relive.store.atomic_io import FreshFile, discarding, make_whole, publish_in_order, state_of
from relive.store.objects import hash_bytes

__all__ = ["Manifests", "canonical", "commit_id_of", "has_placement", "parse_manifest", "unknown"]


def canonical(manifest: Manifest) -> bytes:
    """The bytes whose BLAKE3 is the commit's id: JSON, keys sorted, no blanks, UTF-8.

    Of one that names a listing its layers are no part, since the listing's hash stands for them.
    """
    left_out = {"layers"} if manifest.version >= MANIFEST_VERSION else None
    return json.dumps(
        manifest.model_dump(mode="json", exclude=left_out),
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode("utf-8", "surrogateescape")


def commit_id_of(manifest: Manifest) -> CommitId:
    """The id under which it is or would be stored."""
    return CommitId(hash_bytes(canonical(manifest)))


def has_placement(manifest: Manifest) -> bool:
    """Something of the commit lies in packs."""
    return manifest.version > 1 and bool(manifest.images or manifest.listing)


def unknown(text: str) -> RefUnknown:
    """The error of a name that stands for no commit."""
    return RefUnknown(f"{text!r} names no commit", remedy="`relive log` lists commits, `relive tag` the tags")


class Manifests:
    """The directory of manifests. It alone says which commits there are."""

    def __init__(self, directory: Path, incoming: Path) -> None:
        self._directory = directory
        self._incoming = incoming
        directory.mkdir(exist_ok=True)

    def ids(self) -> set[CommitId]:
        """All commits."""
        ending = ".json"
        return {
            CommitId(name.removesuffix(ending))
            for name in os.listdir(self._directory)
            if name.endswith(ending)
        }

    def state(self) -> str | None:
        """Another after each change of the directory, and for who reads other versions.

        None just after a change, when the next could have the same time.
        """
        state = state_of(self._directory)
        return None if state is None else f"{MANIFEST_VERSION} {state}"

    def has(self, commit_id: CommitId) -> bool:
        """There is such a commit."""
        return self._path(commit_id).exists()

    def write(self, commit_id: CommitId, data: bytes) -> None:
        """Make it durable."""
        with discarding(self.make(commit_id, data)) as made:
            publish_in_order([[made]])

    def make(self, commit_id: CommitId, data: bytes) -> tuple[FreshFile, Path]:
        """Its file, complete and not yet at its place, and that; to be discarded where it does not get there."""
        return make_whole(self._incoming, data, self._path(commit_id))

    def delete(self, commits: Iterable[CommitId]) -> None:
        """Remove those that are there, in this order, so that they cannot come back."""
        for commit_id in commits:
            self._path(commit_id).unlink(missing_ok=True)
        sync_directory(self._directory)

    def read(self, commit_id: CommitId) -> Manifest:
        """The manifest, checked against its id.

        Raises:
            RefUnknown: there is none.
            ObjectCorrupt: it has changed, or is no manifest that can be read.
        """
        return parse_manifest(commit_id, self.raw(commit_id))

    def check(self, commit_id: CommitId) -> None:
        """Compare its bytes with its id, without reading what they say; raises as ``read``."""
        _check_bytes(commit_id, self.raw(commit_id))

    def raw(self, commit_id: CommitId) -> bytes:
        """The file's bytes; raises RefUnknown."""
        try:
            return self._path(commit_id).read_bytes()
        except FileNotFoundError:
            raise unknown(commit_id) from None

    def _path(self, commit_id: CommitId) -> Path:
        return self._directory / f"{commit_id}.json"


def parse_manifest(commit_id: CommitId, data: bytes) -> Manifest:
    """The manifest of those bytes; raises ObjectCorrupt where they are not what the id says, or no manifest."""
    _check_bytes(commit_id, data)
    try:
        manifest = Manifest.model_validate_json(data)
        if not 1 <= manifest.version <= MANIFEST_VERSION:
            raise ValueError(f"it has version {manifest.version}")
        if manifest.version == MANIFEST_VERSION and manifest.layers:
            raise ValueError("it holds files itself")
    except ValueError as error:
        raise ObjectCorrupt(
            f"the manifest of {commit_id[:10]} cannot be read",
            cause=_newer_version(data) or str(error).splitlines()[0],
            remedy="use the Relive that wrote it",
        ) from error
    return manifest


def _newer_version(data: bytes) -> str | None:
    """In words, where a newer Relive wrote it, whose fields this one need not know."""
    try:
        version = json.loads(data)["version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_newer = type(version) is int and version > MANIFEST_VERSION
    return f"it has version {version}, and this Relive reads 1 to {MANIFEST_VERSION}" if is_newer else None


def _check_bytes(commit_id: CommitId, data: bytes) -> None:
    if hash_bytes(data) != commit_id:
        raise ObjectCorrupt(
            f"the manifest of {commit_id[:10]} is damaged", cause="its bytes do not match its id"
        )

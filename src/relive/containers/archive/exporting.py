"""Writing a commit as a checkpoint archive: a container's as its engine wrote it, another's for looking into.

A process tree that is no container has neither a root file system nor an OCI configuration of its own, so no engine can restore
it. What checkpointctl needs to show it can be told of it all the same: a name, a command, CRIU's images.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from relive.containers.archive.changes import VOLUMES, changed_files, layer_archives
from relive.containers.archive.compression import Compression, packing
from relive.containers.archive.layout import (
    CHECKPOINT,
    CONFIG,
    CRI_NAME,
    IMAGE,
    NO_CONTAINER,
    SPEC,
    STATS,
    image_path,
    is_page_file,
)
from relive.containers.archive.tar_files import Member, entry_header, fill, is_safe, the_end
from relive.errors import ObjectCorrupt, UsageError
from relive.images import criu_images_pb2 as pb
from relive.images.pagemap import count_for_older_readers
from relive.model.commit import CommitId, EntryKind, FileEntry, LayerKind, Manifest
from relive.remotes.exporting import Exported, writing
from relive.remotes.parallel import Show
from relive.store import Staging, Store
from relive.store.transfer import Outgoing
from relive.store.transfer_parts import PartKind, TransferPart, check_part

__all__ = ["ArchiveChanges", "export_checkpoint", "write_checkpoint"]

_CHUNK = 1 << 20  # [bytes]
_PAGE = 4096  # [bytes]
_OCI_VERSION = "1.0.2"
_STATS_MAGICS = 0x55105940, 0x57093306
_STATS_HEAD = struct.Struct("<III")  # both magic numbers, the length of the message


def export_checkpoint(
    store: Store,
    commit_id: CommitId,
    target: Path,
    compression: Compression,
    *,
    only_to_inspect: bool,
    force: bool,
    show: Show,
) -> Exported:
    """Write the archive, which is there whole and durable on return, or not at all.

    Args:
        only_to_inspect: that no engine can restore it is not wanted either; else a commit of no container is refused.
        force: replace a file that exists.

    Raises:
        UsageError: the file exists, its directory does not, or the commit is of no container.
        RefUnknown, StoreError: the commit cannot be read.
        DiskFull: the file could not be written.
    """
    manifest = store.manifest(commit_id)
    if manifest.container is None and not only_to_inspect:
        raise _no_container(manifest)
    staging = store.stage()
    try:
        with store.transfers.hold(commit_id) as outgoing, writing(target, force=force) as fresh:
            store.images.lay_out(manifest, staging.images)
            if only_to_inspect:
                count_for_older_readers(staging.images)
            archive = _Archive(manifest, outgoing, staging, ArchiveChanges())
            with (
                show(f"Exporting {commit_id[:10]}", archive.size) as done,
                packing(fresh.write, compression) as write,
            ):
                archive.write(write, done)
            return Exported(commit_id, archive.count, fresh.size)
    finally:
        staging.discard()


@dataclass(frozen=True, slots=True)
class ArchiveChanges:
    """What an archive says otherwise than the commit.

    Attributes:
        members: contents by path, in the place of the commit's own.
        images: added to the images, or in the place of one.
        here: it is for podman on this host, which reads it at once: without page files and volumes, which are given to it
            where they are laid out.
    """

    members: Mapping[str, bytes] = field(default_factory=dict)
    images: Mapping[str, bytes] = field(default_factory=dict)
    here: bool = False


def write_checkpoint(
    manifest: Manifest, staging: Staging, outgoing: Outgoing, target: Path, changes: ArchiveChanges
) -> None:
    """Write a container's archive for podman on this host to ``target``; the images have been laid out in ``staging``.

    Raises:
        StoreError: the commit cannot be read.
        OSError: the file could not be written.
    """
    archive = _Archive(manifest, outgoing, staging, changes)
    with target.open("xb") as file:
        archive.write(file.write, lambda _: None)


def _no_container(manifest: Manifest) -> UsageError:
    return UsageError(
        f"{manifest.target.name} is no container, so podman could not restore it",
        cause="a checkpoint archive needs the container's image and OCI configuration, and a "
        f"{'capsule' if manifest.target.life else 'process'} has neither",
        remedy="--format checkpointctl writes one that can be looked into; `relive export` without --format "
        "one that `relive import` and `relive restore` take",
    )


class _Archive:
    """What goes into the file.

    Attributes:
        size: bytes of all contents; count: files.
    """

    def __init__(
        self, manifest: Manifest, outgoing: Outgoing, staging: Staging, changes: ArchiveChanges
    ) -> None:
        self._manifest = manifest
        self._outgoing = outgoing
        self._images = staging.images
        self._copies = staging.files / "contents"
        self._copies.mkdir()
        for name, content in changes.images.items():
            (staging.images / name).write_bytes(content)
        # CRIU's log and figures, which a commit keeps with its images, belong elsewhere.
        self._image_paths = sorted(
            path
            for path in staging.images.iterdir()
            if path.suffix == ".img" and not (changes.here and is_page_file(path.name))
        )
        self._made = self._make(staging.files, changes)
        self._entries = [
            entry
            for layer in manifest.layers
            if layer.kind is LayerKind.ARCHIVE
            for entry in layer.entries
            if entry.path not in self._made
            and entry.path != IMAGE
            and not (changes.here and entry.path.startswith(VOLUMES))
        ]
        files = [entry for entry in self._entries if entry.kind is EntryKind.FILE]
        self.size = sum(entry.size for entry in files) + sum(
            path.stat().st_size for path in self._image_paths
        )
        self.count = len(files) + len(self._image_paths) + len(self._made)

    def _make(self, directory: Path, changes: ArchiveChanges) -> dict[str, bytes | Path]:
        """Members that the commit does not hold as such."""
        if self._manifest.container is None:
            return dict(_described(self._outgoing.commit.id, self._manifest))
        made: dict[str, bytes | Path] = dict(changes.members)
        archives = layer_archives(self._manifest)
        for number, (name, layer) in enumerate(archives.items()):
            if changes.here and layer.kind is LayerKind.VOLUME:
                continue
            copy = directory / f"layer-{number}"
            changed_files(layer, self._copy, copy)
            made[name] = copy
        if archives:  # Relive's own commit
            made[STATS] = _statistics(self._manifest)
        return made

    def write(self, write: Callable[[bytes], object], done: Callable[[int], None]) -> None:
        """Write the tar: the container's own members as they came, the images behind their directory."""
        has_images = False
        for name, content in self._made.items():
            if isinstance(content, bytes):
                self._put(write, self._own(name, len(content)), iter([content]))
            else:
                self._put(write, self._own(name, content.stat().st_size), _chunks(content, done))
        for entry in self._entries:
            if entry.kind is EntryKind.DIRECTORY:
                write(entry_header(_member(entry)))
                if entry.path == CHECKPOINT:
                    self._put_images(write, done)
                    has_images = True
            elif entry.kind is EntryKind.FILE:
                self._put(write, _member(entry), _chunks(self._copy(entry), done))
            else:
                raise ObjectCorrupt(
                    f"the commit holds {entry.path!r}, which no checkpoint archive does",
                    cause=f"it is a {entry.kind.value}",
                    remedy="do not trust this commit",
                )
        if not has_images:
            # checkpointctl looks for the directory, though its files name it as well.
            write(entry_header(self._own(CHECKPOINT, 0, is_directory=True)))
            self._put_images(write, done)
        write(the_end())

    def _put_images(self, write: Callable[[bytes], object], done: Callable[[int], None]) -> None:
        for path in self._image_paths:
            member = self._own(image_path(path.name), path.stat().st_size)
            self._put(write, member, _chunks(path, done))

    def _put(self, write: Callable[[bytes], object], member: Member, chunks: Iterator[bytes]) -> None:
        write(entry_header(member))
        for chunk in chunks:
            write(chunk)
        write(fill(member.size))

    def _own(self, path: str, size: int, *, is_directory: bool = False) -> Member:
        """A member whose headers no commit keeps."""
        mode = 0o700 if is_directory else 0o600
        return Member(path, is_directory, size, mode, 0, 0, self._manifest.taken_wall_ns)

    def _copy(self, entry: FileEntry) -> Path:
        """The content of a member, checked."""
        assert entry.object is not None
        part = TransferPart(PartKind.OBJECT, entry.object)
        path = self._outgoing.paths.get(part)
        if path is not None:
            check_part(part, path)
        else:
            path = self._copies / entry.object
            if not path.exists():
                self._outgoing.contents.write(entry.object, path)
        if path.stat().st_size != entry.size:
            raise ObjectCorrupt(
                f"the commit says that {entry.path!r} has {entry.size} bytes",
                cause=f"it has {path.stat().st_size}",
                remedy="do not trust this commit",
            )
        return path


def _member(entry: FileEntry) -> Member:
    if not is_safe(entry.path):
        raise ObjectCorrupt(
            f"the commit names a file {entry.path!r}",
            cause="such a path leads out of an archive",
            remedy="do not trust this commit",
        )
    is_directory = entry.kind is EntryKind.DIRECTORY
    return Member(entry.path, is_directory, entry.size, entry.mode, entry.uid, entry.gid, entry.mtime_ns)


def _chunks(path: Path, done: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
            done(len(chunk))


def _described(commit_id: CommitId, manifest: Manifest) -> Mapping[str, bytes]:
    """What is told of a process tree that is no container: enough to be shown, and no image, so that nothing runs it."""
    taken = datetime.fromtimestamp(manifest.taken_wall_ns / 1e9, UTC).isoformat().replace("+00:00", "Z")
    config = {
        "id": commit_id,
        "name": manifest.target.name,
        "rootfsImageName": "",
        "runtime": "",
        "createdTime": taken,
        "checkpointedTime": taken,
    }
    arguments = [
        text.encode(errors="surrogateescape").decode(errors="replace") for text in manifest.target.command
    ]
    spec = {
        "ociVersion": _OCI_VERSION,
        "process": {"args": arguments, "cwd": "/", "user": {"uid": 0, "gid": 0}},
        "hostname": manifest.host.name,
        "annotations": {
            NO_CONTAINER: commit_id,
            CRI_NAME: manifest.target.name,
            "relive.target": manifest.target.kind.value,
        },
    }
    files = {name: json.dumps(value, indent=2).encode() for name, value in ((CONFIG, config), (SPEC, spec))}
    return files | {STATS: _statistics(manifest)}


def _statistics(manifest: Manifest) -> bytes:
    """What CRIU measured at the dump, as far as a commit keeps it; the rest is 0, since checkpointctl wants all of it."""
    pages = sum(-(-image.size // _PAGE) for image in manifest.images if is_page_file(image.name))
    measured = pb.DumpStatsEntry(
        freezing_time=0,
        frozen_time=manifest.pause_us,
        memdump_time=0,
        memwrite_time=0,
        pages_scanned=pages,
        pages_skipped_parent=0,
        pages_written=pages,
        pages_lazy=0,
    )
    body = pb.StatsEntry(dump=measured).SerializeToString()
    return _STATS_HEAD.pack(*_STATS_MAGICS, len(body)) + body

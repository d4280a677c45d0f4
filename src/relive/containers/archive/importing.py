"""Taking a checkpoint archive in as a commit: unpacked beside the store, checked, then stored as any commit is.

Its memory is compared with the last commit of the same container, so that a later checkpoint costs what changed. An archive that
was taken in before, however it was packed, is that commit again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from relive.containers.archive.compression import decompressed, find_compression
from relive.containers.archive.descriptions import Container, read_container
from relive.containers.archive.layout import CONFIG, SPEC, STATS
from relive.containers.archive.tar_files import TarReader
from relive.containers.archive.unpacking import Unpacked, unpack
from relive.containers.archive.validation import check_images, machine_of
from relive.errors import ObjectCorrupt
from relive.images import criu_images_pb2 as pb
from relive.images.image_file import read_entries
from relive.images.processes import read_processes
from relive.images.sockets import read_connections, read_files, read_listening, read_outlets, summarise
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import (
    MANIFEST_VERSION,
    CommitId,
    EntryKind,
    FileEntry,
    HostFacts,
    Layer,
    LayerKind,
    Manifest,
    TargetFacts,
    TargetKind,
    Trigger,
)
from relive.remotes.compatibility import refuse_unfit
from relive.remotes.imported import Imported
from relive.remotes.parallel import Show
from relive.store import Staging, Store, StoredCommit
from relive.store.objects import hash_file
from relive_inprocess.relive_recorder.scrub import Scrubber

__all__ = ["import_checkpoint"]

_UNKNOWN = "unknown"


def import_checkpoint(
    store: Store, path: Path, file: BinaryIO, host: HostFacts, *, force: bool, show: Show
) -> Imported:
    """Take a container's commit in; durable on return.

    Args:
        file: the archive, which is at ``path``, at its begin.
        force: take it in although ``host`` cannot run it.

    Raises:
        ArchiveInvalid: it is damaged, hostile, or no archive of one container; the store shows nothing of it.
        HostUnfit: it was taken on another architecture.
        KeyMissing, KeyWrong: the store is sealed, and its key is not there.
        DiskFull, StoreError: it could not be taken in.
    """
    began_ns = time.monotonic_ns()
    staging = store.stage()
    try:
        with disk_errors("unpacking a checkpoint archive", staging.directory):
            unpacked = _unpack(path, file, staging, show)
            container = _container(path, unpacked)
            check_images(str(path), staging.images)
        lines = [line for line in store.log(container.name) if line.life == container.facts.id]
        others = [line for line in lines if line.capture != unpacked.fingerprint]
        for line in lines:
            # One that lost a part is taken in once more, and so is whole again.
            whole = store.transfers.whole(line.id) if line not in others else None
            if whole is not None:
                return Imported(line.id, 0, 0, len(whole.parts), False)
        facts = HostFacts(name=_UNKNOWN, kernel=_UNKNOWN, criu=_UNKNOWN, machine=machine_of(staging.images))
        if not force:
            refuse_unfit(facts, host)
        return _Intake(store, staging, unpacked, container, facts).run(others, began_ns)
    finally:
        staging.discard()


def _unpack(path: Path, file: BinaryIO, staging: Staging, show: Show) -> Unpacked:
    with show(f"Unpacking {path.name}", path.stat().st_size) as done:
        compression = find_compression(str(path), file)
        counted = cast(BinaryIO, _Counted(file, done))
        reader = TarReader(str(path), decompressed(str(path), counted, compression))
        return unpack(str(path), reader, staging)


class _Counted:
    """A file whose reader tells how far it is."""

    def __init__(self, file: BinaryIO, done: Callable[[int], None]) -> None:
        self._file = file
        self._done = done

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._done(len(data))
        return data


def _container(path: Path, unpacked: Unpacked) -> Container:
    config, spec = unpacked.copy(CONFIG), unpacked.copy(SPEC)
    assert config is not None and spec is not None  # else it would not have been unpacked
    return read_container(str(path), config, spec)


@dataclass(slots=True)
class _Intake:
    """An archive that was found sound, on its way in."""

    store: Store
    staging: Staging
    unpacked: Unpacked
    container: Container
    host: HostFacts

    def run(self, lines: list[StoredCommit], began_ns: int) -> Imported:
        """Store it. ``lines`` are the other commits of the container that are there, newest first."""
        taken_ns = self._taken_ns()
        before = next((line.id for line in lines if line.taken_wall_ns <= taken_ns), None)
        # An older checkpoint than all that are here has no parent, and yet mostly the same pages.
        alike = before or (lines[-1].id if lines else None)
        with self.store.taking_in(alike):
            layer, fresh, held = self._ingest_files()
            with disk_errors("reading images", self.staging.directory):
                manifest = self._manifest(taken_ns, [before] if before else [], layer)
            taken = self.store.ingest_images(self.staging.images)
            manifest = manifest.model_copy(update={"images": taken.images})
            stored = self.store.add(manifest, taken, began_monotonic_ns=began_ns)
        return Imported(stored.id, fresh + 1, stored.new_bytes, held, True)

    def _ingest_files(self) -> tuple[Layer, int, int]:
        """(the layer, contents that were new, that were there)."""
        entries, fresh, held = [], 0, 0
        for file in self.unpacked.files:
            member = file.member
            entry = FileEntry(
                path=member.path,
                kind=EntryKind.DIRECTORY,
                mode=member.mode,
                uid=member.uid,
                gid=member.gid,
                mtime_ns=member.mtime_ns,
            )
            if file.copy is not None:
                is_held = self.store.has_object(hash_file(file.copy))
                content = {
                    "kind": EntryKind.FILE,
                    "size": member.size,
                    "object": self.store.ingest_file(file.copy, ("", member.path)),
                }
                entry = entry.model_copy(update=content)
                held, fresh = held + is_held, fresh + (not is_held)
            entries.append(entry)
        return Layer(point="", kind=LayerKind.ARCHIVE, entries=entries), fresh, held

    def _manifest(self, taken_ns: int, parents: list[CommitId], layer: Layer) -> Manifest:
        images = self.staging.images
        files = read_files(images)
        listening = read_listening(files)
        processes = read_processes(images)
        container = self.container
        return Manifest(
            version=MANIFEST_VERSION,
            capture=self.unpacked.fingerprint,
            target=TargetFacts(
                kind=TargetKind.CONTAINER,
                name=container.name,
                life=container.facts.id,
                root=processes[0].pid,
                command=Scrubber().words(container.command),
                processes=processes,
            ),
            host=self.host,
            trigger=Trigger.IMPORT,
            taken_wall_ns=taken_ns,
            taken_monotonic_ns=0,
            pause_us=self._pause_us(layer),
            parents=parents,
            cursor=None,
            images=[],
            layers=[layer],
            connections=summarise(read_connections(images, files), listening),
            listening=listening,
            outlets=read_outlets(files),
            container=container.facts,
            stopped_by=None,
            stopped_pid=None,
        )

    def _taken_ns(self) -> int:
        """When its engine says it was, else when CRIU wrote its last image."""
        recorded_ns = self.container.checkpointed_ns
        return recorded_ns if recorded_ns is not None else max(0, *self.unpacked.images.values())

    def _pause_us(self, layer: Layer) -> int:
        """How long the container stood still, as CRIU measured it; 0 where the archive does not tell."""
        entry = next((one for one in layer.entries if one.path == STATS and one.object), None)
        with contextlib.suppress(ObjectCorrupt):
            if entry is not None and entry.object is not None:
                statistics = read_entries(self.store.files.content_file(entry), pb.StatsEntry)
                return statistics[0].dump.frozen_time if statistics else 0
        return 0

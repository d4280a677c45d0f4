"""Commits that leave the store for another one, or come from there.

A commit that leaves is held by links to its files, so that it may be dropped or its packs be moved meanwhile. One that comes
is read first (``open``), its parts are gathered in ``arriving/``, where they stay for the next time if it breaks off, and
all is put in place at once (``receive``): parts, placement, manifest, as for a commit that was taken here.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from relive.config import STORE_KEY
from relive.errors import KeyMissing, ObjectCorrupt, ObjectMissing, ReliveError, StoreBusy, UsageError
from relive.kernel.atomic_write import sync_directory
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import CommitId
from relive.store.atomic_io import finish_file
from relive.store.bundle import BUNDLE, checked_bundle
from relive.store.index import CommitIndex, size_of
from relive.store.internals import StoreInternals
from relive.store.listing import check_listing
from relive.store.manifests import canonical, has_placement, parse_manifest
from relive.store.pages.last_index import LastIndex
from relive.store.pages.numpy_threads import load_numpy
from relive.store.pages.packfile import COUNT, HEAD_SIZE, damaged, decode_head, decode_table, table_size
from relive.store.pages.packs import Packs
from relive.store.pages.placement import decode_placement
from relive.store.pages.sealing import FrameSeal, open_with_any
from relive.store.staging import Staging
from relive.store.transfer_parts import PartKind, TransferCommit, TransferPart, check_part, parts_of

if TYPE_CHECKING:
    from relive.store.contents import StoredContents

__all__ = ["Outgoing", "Transfers"]

_KEPT = 7 * 86400.0  # [s] how long parts of a commit that was never fetched to its end are kept


@dataclass(frozen=True)
class Outgoing:
    """A commit that is held for sending, and where its parts lie meanwhile; ``packs`` are those of them that are packs."""

    commit: TransferCommit
    paths: Mapping[TransferPart, Path]
    packs: Packs

    @cached_property
    def contents(self) -> StoredContents:
        """The contents of its files, as far as they lie in packs."""
        load_numpy()
        from relive.store.contents import StoredContents  # noqa: PLC0415 - it takes numpy

        return StoredContents(
            self.packs, LastIndex(), lambda _: self.commit.placement, lambda: iter([self.commit.id])
        )

    def close(self) -> None:
        """Close what is open."""
        if "contents" in self.__dict__:
            self.contents.close()


class Transfers:
    """One for a store; it works on the store's own directories."""

    def __init__(self, store: StoreInternals, index: CommitIndex, stage: Callable[[], Staging]) -> None:
        self._directory = store.directory
        self._arriving = store.directory / "arriving"
        self._lock = store.lock
        self._format = store.format
        self._manifests = store.manifests
        self._placements = store.placements
        self._packs = store.packs
        self._objects = store.objects
        self._index = index
        self._stage = stage

    # -- leaving -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def hold(self, commit_id: CommitId) -> Iterator[Outgoing]:
        """A commit of this store with all its parts, which stay readable within the block.

        Raises:
            RefUnknown: there is none.
            ObjectMissing, ObjectCorrupt, SignatureInvalid: it could not be restored here either.
            UsageError: it is of format 1.
        """
        staging = self._stage()
        try:
            with disk_errors("reading a commit", self._directory), self._lock.held(shared=True):
                commit = self.open(
                    commit_id, self._manifests.raw(commit_id), lambda: self._placements.raw(commit_id)
                )
                packs = Packs(
                    staging.files / PartKind.PACK,
                    staging.directory,
                    self._packs.store_key,
                    self._packs.old_keys,
                )
                (staging.files / PartKind.OBJECT).mkdir()
                paths = {part: staging.files / part.kind / part.name for part in commit.parts}
                for part, path in paths.items():
                    self._link(part, path)
            outgoing = Outgoing(commit, paths, packs)
            with contextlib.closing(outgoing):
                yield outgoing
        finally:
            staging.discard()

    def _link(self, part: TransferPart, path: Path) -> None:
        try:
            os.link(self._place(part), path)
        except FileNotFoundError:
            raise ObjectMissing(
                f"{part} is not in the store",
                cause="it was deleted or never arrived",
            ) from None

    # -- coming --------------------------------------------------------------------------------------------------

    def open(
        self, commit_id: CommitId, manifest_bytes: bytes, placement_bytes: Callable[[], bytes]
    ) -> TransferCommit:
        """Read and check what says what the commit consists of; changes nothing.

        Args:
            placement_bytes: asked for when the manifest is known to be sound.

        Raises:
            ObjectCorrupt: the manifest is not that of the id, or the placement is damaged or another commit's.
            SignatureInvalid: the placement is not signed by this host or one that it trusts.
            UsageError: it is of format 1, which has no signature.
        """
        manifest = parse_manifest(commit_id, manifest_bytes)
        if manifest.version == 1:
            raise UsageError(
                f"the commit {commit_id[:10]} is of format 1, which is not exchanged",
                cause="it is not signed",
                remedy="restore it with the Relive that has it, and commit again",
            )
        if canonical(manifest) != manifest_bytes:
            raise ObjectCorrupt(
                f"the manifest of {commit_id[:10]} is none that Relive writes",
                cause="it says the same in other bytes",
                remedy="do not trust it",
            )
        signed = placement_bytes()
        placement = self._placements.check(commit_id, signed)
        return TransferCommit(
            commit_id, manifest, manifest_bytes, placement, signed, parts_of(manifest, placement)
        )

    def whole(self, commit_id: CommitId) -> TransferCommit | None:
        """The commit if the store has it, can trust it and misses no part of it; contents are not checked."""
        try:
            commit = self.open(
                commit_id, self._manifests.raw(commit_id), lambda: self._placements.raw(commit_id)
            )
        except ReliveError:
            return None
        return None if self.missing(commit) else commit

    def missing(self, commit: TransferCommit) -> list[TransferPart]:
        """Parts that the store does not have."""
        return [part for part in commit.parts if not self._place(part).exists()]

    def parts_named(self, commit: TransferCommit, placement_bytes: bytes) -> tuple[TransferPart, ...]:
        """The parts by another placement of the same commit, whoever signed that; raises ObjectCorrupt."""
        return parts_of(commit.manifest, decode_placement(commit.id, placement_bytes))

    @contextlib.contextmanager
    def receiving(self) -> Iterator[None]:
        """Around all that gathers parts; raises StoreBusy where another process does."""
        with disk_errors("receiving a commit", self._directory):
            self._arriving.mkdir(exist_ok=True)
            lock = os.open(self._arriving / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with _taken_means_busy():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in self._arriving.glob("*-*"):
                if time.time() - path.stat().st_mtime > _KEPT:
                    path.unlink()
            yield
        finally:
            os.close(lock)

    def arriving(self, part: TransferPart) -> Path:
        """Where a part is gathered, within ``receiving``."""
        return self._arriving / f"{part.kind}-{part.name}"

    def check_arrived(self, part: TransferPart) -> None:
        """Raises ObjectCorrupt where what was gathered is not the part; then it is removed."""
        path = self.arriving(part)
        try:
            check_part(part, path)
        except ObjectCorrupt:
            path.unlink()
            raise

    def check_seal(self, pack: TransferPart, head: bytes) -> None:
        """Raises KeyMissing where a pack that begins so is sealed and there is no key, ObjectCorrupt where it is no pack."""
        _, is_sealed = decode_head(pack.name, head)
        if is_sealed and self._packs.store_key() is None and not self._packs.old_keys():
            raise KeyMissing(
                "the commit is sealed and there is no store key",
                cause="its sender keeps a sealed store; nothing was taken in",
                remedy=f"put the sender's `store.key` into the keys directory of RELIVE_HOME, or set {STORE_KEY}",
            )

    def check_opens(
        self, pack: TransferPart, size: int, frame: int, read: Callable[[int, int], bytes]
    ) -> None:
        """See before it travels whether a pack will open here, by one of its frames.

        Args:
            read: gives bytes of it by offset and number.

        Raises:
            KeyMissing, KeyWrong: it is sealed with a key that is not here.
            ObjectCorrupt: it is no pack, or not that of this name.
        """
        head = read(0, HEAD_SIZE)
        self.check_seal(pack, head)
        pack_id, is_sealed = decode_head(pack.name, head)
        if not is_sealed:
            return
        (count,) = COUNT.unpack(read(size - COUNT.size, COUNT.size))
        end = size - table_size(count)
        frames = decode_table(pack.name, head, read(end, size - end), end) if end >= HEAD_SIZE else []
        if frame >= len(frames):
            raise damaged(pack.name, "it is cut off")
        stored = read(frames[frame].offset, frames[frame].stored)
        frames[frame].check(pack.name, frame, stored)
        open_with_any([FrameSeal(key, pack_id, head) for key in self._packs.store_keys()], frame, stored)

    def receive(self, commit: TransferCommit, new_bytes: int) -> list[TransferPart]:
        """Put a commit in place whose parts have arrived, within ``receiving``; durable on return.

        Returns parts that are neither here nor have arrived, since what a commit shares with another may be dropped at any
        time before; then nothing but parts was put in place.

        Raises:
            KeyMissing, KeyWrong: it, or this store, is sealed with a key that is not here.
            ObjectCorrupt: a part, or what the packs hold, is not what the commit says.
            DiskFull, StoreError: it could not be written.
        """
        with disk_errors("receiving a commit", self._directory), self._lock.held(shared=True):
            self._format.make_writable()
            lost = self._install(commit)
            if not lost:
                size = size_of(commit.manifest)
                self._index.add(commit.id, commit.manifest, durable_us=None, size=size, new_bytes=new_bytes)
        return lost

    def _install(self, commit: TransferCommit) -> list[TransferPart]:
        wanted = self.missing(commit)
        lost = [part for part in wanted if not self.arriving(part).exists()]
        if lost:
            return lost
        for part in wanted:
            self.check_arrived(part)  # once more: it may have lain there since the last boot
        # Packs first: should they not open, the next drop removes them, which it does not do with objects.
        for part in wanted:
            if part.kind is PartKind.PACK:
                self._receive_pack(part)
        self._check_opens(commit)
        for part in wanted:
            if part.kind is PartKind.OBJECT:
                self._objects.ingest(self.arriving(part))
        for part in commit.parts:
            self.arriving(part).unlink(missing_ok=True)
        self._placements.install(commit.id, commit.placement_bytes)
        self._manifests.write(commit.id, commit.manifest_bytes)
        return []

    def _receive_pack(self, part: TransferPart) -> None:
        arrived, target = self.arriving(part), self._place(part)
        finish_file(arrived)
        arrived.replace(target)
        sync_directory(target.parent)

    def _check_opens(self, commit: TransferCommit) -> None:
        if not has_placement(commit.manifest):
            return
        load_numpy()
        from relive.store.pages.materialize import PageSource  # noqa: PLC0415 - it takes numpy

        with PageSource(commit.placement, self._packs) as source:
            for image in commit.manifest.images:
                if image.name == BUNDLE:
                    checked_bundle(image, source.index.bundle)
                else:
                    source.table_of(image)
            if commit.manifest.listing is not None:
                check_listing(commit.manifest.listing, source.index)

    def _place(self, part: TransferPart) -> Path:
        return (self._packs if part.kind is PartKind.PACK else self._objects).path(part.name)


@contextlib.contextmanager
def _taken_means_busy() -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise StoreBusy(
            "another pull or import into this store is running",
            cause="they go one after the other, since they may need the same packs",
            remedy="try again when it has ended",
        ) from None

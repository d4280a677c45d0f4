"""What a commit brings, from its first file until it is durable: the state of a commit that is being taken in, or of several, one
after the other, that become durable together.

Its public methods are those of ``Store`` of the same names, which say what each promises.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from relive.errors import ObjectMissing
from relive.kernel.disk_errors import disk_errors
from relive.model.advance import Advance
from relive.model.commit import CommitId, Layer, Manifest
from relive.store.atomic_io import publish_in_order
from relive.store.committed_files import CommittedFiles
from relive.store.held_images import HeldImages
from relive.store.index import CommitIndex, IndexEntry, StoredCommit, objects_of, size_of
from relive.store.ingested import IngestedImages
from relive.store.internals import StoreInternals
from relive.store.listing import contents_of, listed
from relive.store.manifests import canonical
from relive.store.new_files import NewFiles
from relive.store.objects import hash_bytes
from relive.store.pages.numpy_threads import load_numpy
from relive.store.scattered import ScatteredPages
from relive.store.small_files import FilePart
from relive.store.staging import Staging
from relive.store.sweep import sweep_packs
from relive.store.written_commit import MadeFile, WrittenCommit

if TYPE_CHECKING:
    from relive.store.image_intake import ImageIntake
    from relive.store.pages.ingest import IngestedPages

__all__ = ["Intake"]


class Intake:
    """Of one store, for one commit after the other."""

    def __init__(
        self,
        parts: StoreInternals,
        index: CommitIndex,
        new_files: NewFiles,
        files: CommittedFiles,
        stage: Callable[[], Staging],
    ) -> None:
        """Begin nothing yet.

        Args:
            new_files: where this puts the files of the commit that is being taken in.
            stage: makes a directory for files.
        """
        self._parts, self._index = parts, index
        self._new_files, self._files, self._stage = new_files, files, stage
        self._parent: CommitId | None = None
        self._advance = Advance()
        self._is_taking_in = False
        self._referable: Collection[str] | None = None
        self._open_intake: IngestedImages | None = None

    @cached_property
    def _images(self) -> ImageIntake:
        # Only with the first commit: importing numpy takes longer than all else that `relive log` does.
        load_numpy()
        from relive.store.image_intake import ImageIntake  # noqa: PLC0415

        return ImageIntake(self._parts)

    def make_ready(self) -> None:
        """Load now what is needed for images."""
        _ = self._images

    def release_memory(self) -> None:
        """As ``Store.release_memory``."""
        if "_images" in self.__dict__:
            self._images.release_memory()

    def release_disk(self) -> None:
        """As ``Store.release_disk``."""
        if "_images" in self.__dict__:
            self._images.release_disk()

    def close(self) -> None:
        """Give up what is known of the last commits, and the files of one that was not added."""
        self._new_files.clear()
        self.__dict__.pop("_images", None)

    @contextlib.contextmanager
    def taking_in(self, parent: CommitId | None = None, advance: Advance | None = None) -> Iterator[None]:
        """As ``Store.taking_in``."""
        self._parent, self._referable = parent, None
        self._advance = advance or Advance()
        try:
            with self._parts.lock.held(shared=True):
                with disk_errors("making the store ready to be written to", self._parts.directory):
                    self._parts.format.make_writable()
                self._is_taking_in = True
                yield
        except BaseException:
            # The first error is the one to be told.
            with contextlib.suppress(OSError, sqlite3.Error), self._parts.lock.held(shared=False):
                sweep_packs(self._parts.manifests.ids(), self._parts.placements, self._parts.packs)
            raise
        finally:
            self._is_taking_in = False
            self._parent = self._referable = None
            self._new_files.clear()
            self._discard_intake()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """With the store ready to be written to, and its lock held; within ``taking_in`` both are so."""
        if self._is_taking_in:
            yield
            return
        with self._parts.lock.held(shared=True):
            self._parts.format.make_writable()
            yield

    def _discard_intake(self) -> None:
        taken, self._open_intake = self._open_intake, None
        if taken is not None:
            taken.intake.discard()

    def ingest_file(
        self, file: Path, place: tuple[str, str] | None = None, part: FilePart | None = None
    ) -> str:
        """As ``Store.ingest_file``."""
        with disk_errors("storing a file", self._parts.directory):
            return self._new_files.ingest(file, place, part)

    def ingest_images(
        self,
        source: Path | HeldImages,
        parent: CommitId | None = None,
        *,
        scattered: Mapping[str, ScatteredPages] | None = None,
    ) -> IngestedImages:
        """As ``Store.ingest_images``."""
        self._discard_intake()
        with disk_errors("storing the memory images", self._parts.directory):
            self._open_intake = taken = self._images.ingest(source, parent or self._parent, scattered or {})
        return taken

    def add(
        self,
        manifest: Manifest,
        taken: IngestedImages | None = None,
        *,
        began_monotonic_ns: int | None = None,
        new_bytes: int | None = None,
    ) -> StoredCommit:
        """As ``Store.add``."""
        with disk_errors("writing the commit", self._parts.directory), self._writing():
            (stored,) = self._publish([self._write(manifest, taken, began_monotonic_ns)], new_bytes)
        return stored

    def write(
        self, manifest: Manifest, taken: IngestedImages | None, began_monotonic_ns: int | None
    ) -> WrittenCommit:
        """As ``Store.write``."""
        with disk_errors("writing the commit", self._parts.directory):
            return self._write(manifest, taken, began_monotonic_ns)

    def go_on_from(self, commit: WrittenCommit) -> None:
        """As ``Store.go_on_from``."""
        with disk_errors("writing the commit", self._parts.directory):
            # Its pack, which the next may read. It is nobody's while there is no placement.
            for fresh, place in commit.of_pages[:1]:
                fresh.expose(place)
        self._remember(commit)
        self._parent, self._referable = commit.id, None
        self._new_files.clear()

    def publish(self, commits: Sequence[WrittenCommit]) -> list[StoredCommit]:
        """As ``Store.publish``."""
        with disk_errors("writing the commits", self._parts.directory):
            return self._publish(commits, None)

    def _write(
        self, manifest: Manifest, taken: IngestedImages | None, began_monotonic_ns: int | None
    ) -> WrittenCommit:
        assert manifest.images == (taken.images if taken is not None else [])
        manifest, listing = listed(manifest)
        data = canonical(manifest)
        commit_id = CommitId(hash_bytes(data))
        self._refuse_missing(manifest)
        if taken is None and listing:
            taken = self._open_intake = self._images.begin(self._parent)
        pages = None if taken is None else self._finish(taken, manifest.layers, listing)
        is_new = not self._parts.manifests.has(commit_id)
        made: list[MadeFile] = []
        try:
            if pages is not None:
                made.append(pages.pack)
                made.append(self._images.place(commit_id, pages))
            made.append(self._parts.manifests.make(commit_id, data))
        except BaseException:
            for fresh, _ in made:
                fresh.discard()
            raise
        *of_pages, file = made
        size = len(data) + sum(fresh.size for fresh, _ in of_pages)
        return WrittenCommit(
            commit_id, manifest, is_new, file, size, began_monotonic_ns, of_pages, taken, pages
        )

    def _publish(self, commits: Sequence[WrittenCommit], new_bytes: int | None) -> list[StoredCommit]:
        """Put packs, placements and manifests at their places, durable on return, and enter them."""
        new = [one.id for one in commits if one.is_new]
        try:
            of_pages = [made for one in commits for made in one.of_pages]
            publish_in_order([of_pages, [one.file for one in commits]])
            now = time.monotonic_ns()
            stored = self._index.add_all([_entry_of(one, now, new_bytes) for one in commits])
        except BaseException:
            # The first error is the one to be told.
            with contextlib.suppress(OSError):
                self._parts.manifests.delete(reversed(new))
            for one in commits:
                one.discard()
            if remembered := [one.id for one in commits if one.is_remembered]:
                self._images.forget(remembered)
            raise
        for one in commits:
            self._remember(one)
        return stored

    def _remember(self, commit: WrittenCommit) -> None:
        if commit.taken is not None and commit.pages is not None:
            self._images.remember(commit.id, commit.taken, commit.pages)
            commit.taken = commit.pages = (
                None  # each has as much memory as its parent: a group would hold that of all
            )
            commit.is_remembered = True

    def _finish(self, taken: IngestedImages, layers: Sequence[Layer], listing: bytes) -> IngestedPages:
        """Take the files in, with which the pack is complete."""
        wanted = contents_of(layers) if listing else []
        known = self._images.known_layers(taken)
        try:
            with contextlib.ExitStack() as stack:
                for name in wanted:
                    if name not in self._new_files and name not in known.contents.positions:
                        self._bring(name, stack)
                new = self._new_files.compared(known.places.get)
                pages = self._images.finish(taken, layers, wanted, new, listing, self._advance)
        except BaseException:
            taken.intake.discard()
            raise
        finally:
            self._open_intake = None
        return pages

    def _bring(self, name: str, stack: contextlib.ExitStack) -> None:
        """Have a content ready that is in the store, but not in the parent: an object of before, or another commit's."""
        if self._parts.objects.path(name).exists():
            if self._new_files.borrow(self._parts.objects.path(name)) == name:
                return
        elif self._files.contents.has(name):
            staging = self._stage()
            stack.callback(staging.discard)
            self._files.contents.write(name, staging.files / "content")
            self._new_files.borrow(staging.files / "content")
            return
        raise ObjectMissing(
            f"content {name[:12]} of the commit is gone or damaged",
            cause="the last other commit that used it was dropped meanwhile, or the disk has changed it",
            remedy="commit again",
        )

    def _refuse_missing(self, manifest: Manifest) -> None:
        missing = {name for name in objects_of(manifest) if not self._parts.objects.path(name).exists()}
        if missing:
            raise ObjectMissing(
                f"{len(missing)} objects of the commit are gone",
                cause="the last other commit that used them was dropped meanwhile",
                remedy="commit again",
            )

    def has_object(self, name: str) -> bool:
        """As ``Store.has_object``."""
        # The parent may have to be read back to the disk.
        with disk_errors("looking up a content", self._parts.directory):
            return (
                name in self._new_files
                or name in self._parent_contents()
                or self._parts.objects.path(name).exists()
            )

    def _parent_contents(self) -> Collection[str]:
        """Names of the contents that the commit which is being taken in can refer to; looked up once for each."""
        if self._referable is None:
            known = None if self._parent is None else self._images.known(self._parent)
            self._referable = () if known is None else known.contents.contents.positions
        return self._referable


def _entry_of(commit: WrittenCommit, now_monotonic_ns: int, new_bytes: int | None) -> IndexEntry:
    began = commit.began_monotonic_ns
    durable_us = (now_monotonic_ns - began) // 1000 if began is not None else None
    size = commit.size if new_bytes is None else new_bytes
    return IndexEntry(commit.id, commit.manifest, durable_us, size_of(commit.manifest), size)

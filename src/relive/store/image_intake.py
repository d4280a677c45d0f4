"""Images of one commit after the other, taken in: pages against those of the parent, small images as one bundle.

Contents of files go into the same pack (``finish``). What is known of the last commits is kept, so that the next can be compared
with them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from relive.errors import ObjectCorrupt, ObjectMissing, RefUnknown, SignatureInvalid
from relive.model.advance import Advance
from relive.model.commit import CommitId, ImageFile, Layer
from relive.store.atomic_io import FreshFile
from relive.store.bundle import BUNDLE, pack_bundle
from relive.store.held_images import HeldImages
from relive.store.ingested import IngestedImages
from relive.store.internals import StoreInternals
from relive.store.manifests import has_placement
from relive.store.objects import hash_bytes
from relive.store.pages.contents import NewContent
from relive.store.pages.held_pages import HeldPages
from relive.store.pages.ingest import CommitIntake, IngestedPages
from relive.store.pages.mapped import MappedPages, map_pages, map_runs
from relive.store.pages.parent_cache import KnownCommit, KnownContents, ParentCache
from relive.store.pages.parent_readback import read_back
from relive.store.pages.placement import Placement
from relive.store.pages.runs import PageFile, page_files
from relive.store.pages.size import PAGE
from relive.store.scattered import ScatteredPages

__all__ = ["ImageIntake"]


class ImageIntake:
    """Use it from one thread. What it knows of the last commits makes the next ones fast; it may be forgotten."""

    def __init__(self, parts: StoreInternals) -> None:
        self._packs = parts.packs
        self._placements = parts.placements
        self._manifests = parts.manifests
        self._known = ParentCache()
        self._read_back: tuple[CommitId, KnownCommit] | None = None  # asked for twice within one commit

    def begin(self, parent: CommitId | None) -> IngestedImages:
        """Begin a commit that has no images (yet). To be called with the store's lock held."""
        self._known.release_memory()  # if nobody did: not two of them beside the new one
        known = self.known(parent) if parent is not None else None
        return IngestedImages(
            [], b"", parent if known is not None else None, CommitIntake(known, self._packs)
        )

    def ingest(
        self, source: Path | HeldImages, parent: CommitId | None, scattered: Mapping[str, ScatteredPages]
    ) -> IngestedImages:
        """Take CRIU's files in; they may be removed then. To be called with the store's lock held.

        Args:
            scattered: as of ``Store.ingest_images``.

        Raises:
            OSError: the disk is full.
        """
        taken = self.begin(parent)
        try:
            return self._ingest(source, taken, scattered)
        except BaseException:
            taken.intake.discard()
            raise

    def _ingest(
        self, source: Path | HeldImages, taken: IngestedImages, scattered: Mapping[str, ScatteredPages]
    ) -> IngestedImages:
        small, files = _opened(source, scattered) if isinstance(source, Path) else _held(source)
        bundle = pack_bundle(small)

        def hashed(file: tuple[PageFile, HeldPages]) -> str:
            return file[1].hashed(file[0].size, taken.intake.before(file[0]))

        if isinstance(source, HeldImages):
            # Of pages in a pool few are hashed: a thread would take as long.
            taken.intake.ingest_pages(files)
            hashes = list(map(hashed, files))
        else:
            # A thread beside the comparison; gone on return, since the caller may fork.
            with ThreadPoolExecutor(1) as pool:
                hashing = pool.map(hashed, files)
                taken.intake.ingest_pages(files)
                hashes = list(hashing)
        images = [
            ImageFile(name=file.name, size=file.size, object=name)
            for (file, _), name in zip(files, hashes, strict=True)
        ]
        images.append(ImageFile(name=BUNDLE, size=len(bundle), object=hash_bytes(bundle)))
        return replace(taken, images=images, bundle=bundle)

    def known_layers(self, taken: IngestedImages) -> KnownContents:
        """The contents of the commit that this one is compared with."""
        parent = taken.intake.parent
        return KnownContents.none() if parent is None else parent.contents

    def finish(
        self,
        taken: IngestedImages,
        layers: Sequence[Layer],
        wanted: Sequence[str],
        new: Mapping[str, NewContent],
        listing: bytes,
        advance: Advance,
    ) -> IngestedPages:
        """Take in what is new of the contents of files; the pack is complete on return, and still to be put at its place.

        Args:
            wanted: names of all contents; each is one of the parent's or of ``new``.
            listing: the bytes that tell the layers.
            advance: is told how far it is.

        Raises:
            OSError: the disk is full.
        """
        taken.intake.ingest_contents(layers, wanted, new, advance)
        return taken.intake.finish(taken.bundle, listing)

    def place(self, commit_id: CommitId, pages: IngestedPages) -> tuple[FreshFile, Path]:
        """The file that says where the commit lies (``Placements.make``)."""
        known = pages.known
        bases = [one.place for one in pages.bases]
        placement = Placement(commit_id, known.packs, pages.index, bases, known.since_key)
        own = known.packs[pages.index.pack]
        missing = {name for name in placement.needed() if name != own and not self._packs.has(name)}
        if missing:
            raise ObjectMissing(
                f"{len(missing)} packs of the commit are gone",
                cause="the last other commit that needed them was dropped meanwhile",
                remedy="commit again",
            )
        return self._placements.make(placement)

    def remember(self, commit_id: CommitId, taken: IngestedImages, pages: IngestedPages) -> None:
        """The commit is durable, or will be before the next one is: that may be compared with it."""
        self._read_back = None
        self._known.put(commit_id, pages.known, instead_of=taken.parent)

    def forget(self, commits: Collection[CommitId]) -> None:
        """What was remembered of these is of no use: they were not stored after all."""
        self._known.forget(commits)

    def release_memory(self) -> None:
        """Give back the memory of what the next commit will not be compared with, or has to make again."""
        self._known.release_memory()
        self._known.release_dictionaries()

    def release_disk(self) -> None:
        """Forget what the next commits would be compared with: it is in unnamed files, and is made again from packs."""
        self._known = ParentCache()
        self._read_back = None

    def known(self, commit_id: CommitId) -> KnownCommit | None:
        """The commit to compare with; None, so that all is kept anew, if it cannot be given back (any more)."""
        known = self._known.get(commit_id)
        if known is None and self._read_back is not None and self._read_back[0] == commit_id:
            known = self._read_back[1]
        if known is not None and all(name is None or self._packs.has(name) for name in known.packs):
            return known
        self._read_back = None
        known = self._from_packs(commit_id)
        if known is not None:
            self._read_back = commit_id, known
        return known

    def _from_packs(self, commit_id: CommitId) -> KnownCommit | None:
        with contextlib.suppress(RefUnknown, ObjectMissing, ObjectCorrupt, SignatureInvalid):
            manifest = self._manifests.read(commit_id)
            if has_placement(manifest):
                known = read_back(manifest, self._placements.read(commit_id), self._packs)
                if all(name is None or self._packs.has(name) for name in known.packs):
                    return known
                # All pages of memory were read, so what is gone is a file's: all of those are kept anew.
                packs = [name if name is not None and self._packs.has(name) else None for name in known.packs]
                return replace(known, contents=KnownContents.none(), packs=packs)
        return None


def _opened(
    directory: Path, scattered: Mapping[str, ScatteredPages]
) -> tuple[dict[str, bytes], list[tuple[PageFile, HeldPages]]]:
    """The small images of a directory, and its page files."""
    paths = {path.name: path for path in sorted(directory.iterdir()) if path.suffix == ".img"}
    sizes = {name: path.stat().st_size for name, path in paths.items() if name.startswith("pages-")}
    small = {name: path.read_bytes() for name, path in paths.items() if name not in sizes}
    sizes |= {name: pages.size for name, pages in scattered.items()}
    return small, [
        (file, _map_scattered(scattered[file.name]) if file.name in scattered else _map(paths[file.name]))
        for file in page_files(small, sizes)
    ]


def _held(images: HeldImages) -> tuple[dict[str, bytes], list[tuple[PageFile, HeldPages]]]:
    sizes = {name: len(pages) * PAGE for name, pages in images.pages.items()}
    return images.small, [(file, images.pages[file.name]) for file in page_files(images.small, sizes)]


def _map(path: Path) -> MappedPages:
    with path.open("rb") as file:
        return MappedPages(map_pages(file.fileno()))


def _map_scattered(pages: ScatteredPages) -> MappedPages:
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")).fileno() for path in pages.files]
        return MappedPages(map_runs(files, pages.runs))

"""The images of a commit: taken in as pages and one index, given back as the files that CRIU wrote.

Contents of its files go the same way in; they come back by ``contents``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from relive.errors import ObjectCorrupt, ObjectMissing, RefUnknown, SignatureInvalid
from relive.model.advance import Advance
from relive.model.commit import CommitId, ImageFile, Layer, Manifest
from relive.store.atomic_io import FreshFile
from relive.store.bundle import (
    BUNDLE,
    checked_bundle,
    pack_bundle,
    plain_name,
    unpack_bundle,
    write_bundle,
)
from relive.store.held_images import HeldImages
from relive.store.image_cache import ImageCache
from relive.store.ingested import IngestedImages
from relive.store.manifests import Manifests, commit_id_of, has_placement, unknown
from relive.store.objects import hash_bytes
from relive.store.pages.commit_memory import CommitMemory
from relive.store.pages.contents import NewContent
from relive.store.pages.held_pages import HeldPages
from relive.store.pages.ingest import CommitIntake, IngestedPages
from relive.store.pages.last_index import LastIndex
from relive.store.pages.mapped import MappedPages, map_pages, map_runs
from relive.store.pages.materialize import PageSource
from relive.store.pages.packs import Packs
from relive.store.pages.page_reader import CommitPages, lazy_page_numbers
from relive.store.pages.parent_cache import KnownCommit, KnownContents, ParentCache
from relive.store.pages.parent_readback import read_back
from relive.store.pages.placement import Placement, Placements
from relive.store.pages.runs import PageFile, page_files
from relive.store.pages.size import PAGE
from relive.store.scattered import ScatteredPages

__all__ = ["Images"]

_Read = TypeVar("_Read")
_PAGE_FILE = re.compile(r"pages-[0-9]+\.img")


class Images:
    """Use it from one thread. What it knows of the last commits makes the next ones fast; it may be forgotten."""

    def __init__(
        self,
        packs: Packs,
        placements: Placements,
        image_cache: ImageCache,
        manifests: Manifests,
        last_index: LastIndex,
    ) -> None:
        self._packs = packs
        self._placements = placements
        self._image_cache = image_cache
        self._manifests = manifests
        self._known = ParentCache()
        self._read_back: tuple[CommitId, KnownCommit] | None = None  # asked for twice within one commit
        self._last_index = last_index

    # -- taking in -----------------------------------------------------------------------------------------------

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

        if isinstance(
            source, HeldImages
        ):  # of pages in a pool, of which few are hashed: a thread would take as long
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
        """The commit is durable: the next one may be compared with it."""
        self._read_back = None
        self._known.put(commit_id, pages.known, instead_of=taken.parent)

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

    # -- giving back ---------------------------------------------------------------------------------------------

    def lay_out(self, manifest: Manifest, directory: Path, *, lazily: bool = False) -> None:
        """Make the files in ``directory``, bit for bit.

        Args:
            lazily: leave holes for pages that can come later (``open_pages``). What is there is checked frame by frame,
                since the hash of a page file says nothing about a part of it.

        Raises:
            RefUnknown: the commit was dropped meanwhile.
            ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: something of them is gone, damaged or
                cannot be trusted or opened; the directory is then of no use.
            OSError: the disk is full.
        """
        self._laid_out_in(directory, self._lay_out_lazily if lazily else self._lay_out, manifest)

    def kept_page_files(self, manifest: Manifest) -> list[Path]:
        """Where its page files are, if they are kept; raises ObjectCorrupt where they are named as none are."""
        return [self._image_cache.path(image) for image in _page_images(manifest)]

    def lay_out_small(self, manifest: Manifest, directory: Path) -> None:
        """Make all files but those of pages; raises as ``lay_out``."""
        self._laid_out_in(directory, self._lay_out_small, manifest)

    def read_small(self, manifest: Manifest, name: str) -> bytes | None:
        """One of the small images; None where the commit has none of that name. Raises as ``lay_out``."""

        def read(placement: Placement) -> bytes | None:
            return unpack_bundle(self._bundle(manifest, placement)).get(name)

        return self._as_it_lies(read, manifest) if manifest.images else None

    def lay_out_pages(self, manifest: Manifest, directory: Path) -> None:
        """Make the page files, where the others are already; raises as ``lay_out``.

        What is kept of the last branch is named by what is in it, and the manifest says the same: nothing else is read then.
        """
        if self._packs.store_key() is not None or self._not_kept(manifest, directory):
            self._laid_out_in(directory, self._lay_out_pages, manifest)

    def _laid_out_in(
        self, directory: Path, lay_out: Callable[[Manifest, Placement, Path], None], manifest: Manifest
    ) -> None:
        if not manifest.images:
            return
        paths = [directory / plain_name(image.name) for image in manifest.images]

        def anew(placement: Placement) -> None:
            for path in paths:
                path.unlink(missing_ok=True)
            lay_out(manifest, placement, directory)

        self._as_it_lies(anew, manifest)

    def _as_it_lies(self, read: Callable[[Placement], _Read], manifest: Manifest) -> _Read:
        commit_id = commit_id_of(manifest)
        placement = self._placements.read(commit_id)
        while True:
            try:
                return read(placement)
            except ObjectMissing:
                # Readers hold no lock, so a commit may be dropped, or its pages be moved, while it is read.
                if not self._manifests.has(commit_id):
                    raise unknown(commit_id) from None
                before, placement = placement, self._placements.read(commit_id)
                if placement == before:
                    raise

    def _lay_out(self, manifest: Manifest, placement: Placement, directory: Path) -> None:
        self._lay_out_pages(manifest, placement, directory)
        self._lay_out_small(manifest, placement, directory)

    def _lay_out_small(self, manifest: Manifest, placement: Placement, directory: Path) -> None:
        write_bundle(self._bundle(manifest, placement), directory)

    def _bundle(self, manifest: Manifest, placement: Placement) -> bytes:
        """The small images, checked."""
        with self._source(placement) as source:
            return checked_bundle(_bundle_image(manifest), source.index.bundle)

    def _source(self, placement: Placement) -> PageSource:
        return PageSource(placement, self._packs, self._last_index)

    def _not_kept(self, manifest: Manifest, directory: Path) -> list[ImageFile]:
        """Link the page files that are kept into a directory; returns the others."""
        return [
            image
            for image in _page_images(manifest)
            if not self._image_cache.link_page_file(image, directory / plain_name(image.name))
        ]

    def _lay_out_pages(self, manifest: Manifest, placement: Placement, directory: Path) -> None:
        page_images = _page_images(manifest)
        if missing := self._not_kept(manifest, directory):
            with self._source(placement) as source:
                for image in missing:
                    source.write(image, directory / image.name)
        # What is sealed does not lie about plain for longer than its branch.
        is_sealed = self._packs.store_key() is not None
        self._image_cache.replace([] if is_sealed else page_images, directory)

    def _lay_out_lazily(self, manifest: Manifest, placement: Placement, directory: Path) -> None:
        # Files with holes are not kept for the next branch.
        with self._source(placement) as source:
            some = lazy_page_numbers(manifest.images, _small(manifest, source))
            for image in manifest.images:
                if image.name in some:
                    source.write_some(image, directory / image.name, some[image.name])
                elif image.name == BUNDLE:
                    write_bundle(checked_bundle(image, source.index.bundle), directory)
                else:
                    source.write(image, directory / image.name)

    def open_pages(self, manifest: Manifest) -> CommitPages:
        """Open the packs of its pages; to be called with the store's lock held, and closed by the caller.

        Raises:
            ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: as ``lay_out``.
        """
        source = self._source(self._placements.read(commit_id_of(manifest)))
        with contextlib.ExitStack() as stack:
            stack.enter_context(source)
            small = _small(manifest, source)
            stack.pop_all()
        return CommitPages(source, manifest.images, small, self._image_cache.open)

    def open_memory(self, manifest: Manifest) -> CommitMemory:
        """Open the packs of all its pages; to be called, and raises, as ``open_pages``."""
        source = self._source(self._placements.read(commit_id_of(manifest)))
        with contextlib.ExitStack() as stack:
            stack.enter_context(source)
            small = _small(manifest, source)
            stack.pop_all()
        return CommitMemory(source, manifest.images, small)


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


def _small(manifest: Manifest, source: PageSource) -> dict[str, bytes]:
    return unpack_bundle(checked_bundle(_bundle_image(manifest), source.index.bundle))


def _page_images(manifest: Manifest) -> list[ImageFile]:
    """Raises ObjectCorrupt where one is called otherwise: it would take the place of a small image that has been checked."""
    found = [image for image in manifest.images if image.name != BUNDLE]
    for image in found:
        if not _PAGE_FILE.fullmatch(image.name):
            raise ObjectCorrupt(
                f"the commit names a file of pages {image.name!r}",
                cause="none is called so",
                remedy="do not trust it",
            )
    return found


def _bundle_image(manifest: Manifest) -> ImageFile:
    for image in manifest.images:
        if image.name == BUNDLE:
            return image
    raise ObjectCorrupt(
        "the commit has no small images", cause="every dump has them", remedy="do not trust this commit"
    )

"""Images of a commit from version 2 on, given back from its packs, bit for bit: as the files that CRIU wrote, or page by page.

They come in by ``image_intake``. Contents of files come back by ``contents``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.model.commit import ImageFile, Manifest
from relive.store.bundle import BUNDLE, checked_bundle, plain_name, unpack_bundle, write_bundle
from relive.store.image_cache import ImageCache
from relive.store.internals import StoreInternals
from relive.store.manifests import commit_id_of, unknown
from relive.store.pages.commit_memory import CommitMemory
from relive.store.pages.last_index import LastIndex
from relive.store.pages.materialize import PageSource
from relive.store.pages.page_reader import CommitPages, lazy_page_numbers
from relive.store.pages.placement import Placement

__all__ = ["Images"]

_Read = TypeVar("_Read")
_PAGE_FILE = re.compile(r"pages-[0-9]+\.img")


class Images:
    """Of one store. Use it from one thread."""

    def __init__(self, parts: StoreInternals, image_cache: ImageCache, last_index: LastIndex) -> None:
        self._packs = parts.packs
        self._placements = parts.placements
        self._manifests = parts.manifests
        self._image_cache = image_cache
        self._last_index = last_index

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

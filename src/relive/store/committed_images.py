"""Images of commits, given back: as the files that CRIU wrote, or page by page.

Version 1 kept each image whole (``version1``); since then pages lie in packs (``images``).
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from relive.errors import UsageError
from relive.kernel.disk_errors import disk_errors
from relive.model.commit import Manifest
from relive.store.image_cache import ImageCache
from relive.store.internals import StoreInternals
from relive.store.pages.last_index import LastIndex
from relive.store.pages.numpy_threads import load_numpy
from relive.store.version1 import lay_out_whole_images

if TYPE_CHECKING:
    from relive.store.images import Images
    from relive.store.pages.commit_memory import CommitMemory
    from relive.store.pages.page_reader import CommitPages

__all__ = ["CommittedImages"]


class CommittedImages:
    """``Store.images``; use it from the store's thread.

    Readers hold no lock while they lay out: a commit that is dropped meanwhile is RefUnknown, one that is moved is read where it
    lies then. What ``open_pages`` and ``open_memory`` have opened stays readable.
    """

    def __init__(self, parts: StoreInternals, last_index: LastIndex) -> None:
        self._parts, self._last_index = parts, last_index
        self._cache = ImageCache(parts.directory / "laid")

    @cached_property
    def _images(self) -> Images:
        # Only when pages are asked for: importing numpy takes longer than all else that `relive log` does.
        load_numpy()
        from relive.store.images import Images  # noqa: PLC0415

        return Images(self._parts, self._cache, self._last_index)

    def make_ready(self) -> None:
        """Load now what is needed for pages; else the first to ask for some waits for it."""
        _ = self._images

    def close(self) -> None:
        """Give up what was loaded for pages."""
        self.__dict__.pop("_images", None)

    def drop_kept(self) -> None:
        """Delete the page files that are kept of the commit that was laid out last."""
        self._cache.clear()

    def lay_out(self, manifest: Manifest, directory: Path, *, lazily: bool = False) -> None:
        """Make CRIU's image files in ``directory`` (of the same file system), checked. No thread is left behind.

        Args:
            lazily: leave holes for the pages that ``open_pages`` has; only where ``are_paged``.

        Raises:
            RefUnknown: the commit was dropped meanwhile.
            ObjectMissing, ObjectCorrupt: something of an image is gone or damaged; the directory is then of no use.
            SignatureInvalid: it is not signed by this host or one that it trusts.
            KeyMissing, KeyWrong: it is sealed with a key that is not there.
        """
        with disk_errors("laying out images", self._parts.directory):
            if manifest.version == 1:
                lay_out_whole_images(manifest, directory, self._parts.objects)
            else:
                self._images.lay_out(manifest, directory, lazily=lazily)

    def lay_out_small(self, manifest: Manifest, directory: Path) -> None:
        """As ``lay_out``, but without the page files where these can be made for themselves."""
        with disk_errors("laying out images", self._parts.directory):
            if manifest.version == 1:
                lay_out_whole_images(manifest, directory, self._parts.objects)
            else:
                self._images.lay_out_small(manifest, directory)

    def lay_out_page_files(self, manifest: Manifest, directory: Path) -> None:
        """What ``lay_out_small`` left out."""
        with disk_errors("laying out images", self._parts.directory):
            if manifest.version > 1:
                self._images.lay_out_pages(manifest, directory)

    def kept_page_files(self, manifest: Manifest) -> list[Path]:
        """What ``lay_out_page_files`` reads if it is there, kept of an earlier branch; it is not checked.

        Raises:
            ObjectCorrupt: the manifest names page files as none are named.
        """
        return self._images.kept_page_files(manifest) if manifest.version > 1 else []

    def read_small(self, manifest: Manifest, name: str) -> bytes | None:
        """One image that holds no pages; None where the commit has none of that name. Raises as ``lay_out``."""
        with disk_errors("reading an image", self._parts.directory):
            return self._images.read_small(manifest, name) if manifest.version > 1 else None

    @staticmethod
    def are_paged(manifest: Manifest) -> bool:
        """The commit's pages can be had one by one: it is of version 2 or later, and holds a memory."""
        return manifest.version > 1 and bool(manifest.images)

    def open_pages(self, manifest: Manifest) -> CommitPages:
        """The pages that can come later than the processes they belong to; the caller closes it.

        Raises:
            ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: as ``lay_out``.
        """
        with (
            disk_errors("opening the packs", self._parts.directory),
            self._parts.lock.held(shared=True),
        ):
            return self._images.open_pages(manifest)

    def open_memory(self, manifest: Manifest) -> CommitMemory:
        """All its pages and small images, for reading; the caller closes it.

        Raises:
            UsageError: an old Relive wrote it, or it holds no memory.
            ObjectMissing, ObjectCorrupt, SignatureInvalid, KeyMissing, KeyWrong: as ``lay_out``.
        """
        if not self.are_paged(manifest):
            raise UsageError(
                "the memory of this commit cannot be read",
                cause="it holds none, or was written by a Relive that kept it as whole files",
                remedy="restore it and commit the branch's service again",
            )
        with (
            disk_errors("opening the packs", self._parts.directory),
            self._parts.lock.held(shared=True),
        ):
            return self._images.open_memory(manifest)

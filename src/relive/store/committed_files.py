"""Files of commits, given back: contents by the entries that name them, and layers laid out as directories.

A content lies in a pack (``contents``), in an object of its own if a commit from before format 5 brought it (``objects``), or
among the new files of the commit that is being taken in.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from relive.kernel.disk_errors import disk_errors, takes_writes
from relive.model.commit import CommitId, FileEntry, Layer
from relive.store.internals import StoreInternals
from relive.store.layer_cache import LayerCache, materialize_layer
from relive.store.new_files import NewFiles
from relive.store.objects import hash_bytes
from relive.store.pages.last_index import LastIndex
from relive.store.pages.numpy_threads import load_numpy

if TYPE_CHECKING:
    from relive.store.contents import StoredContents

__all__ = ["CommittedFiles"]

_CONTENT = "content"


class CommittedFiles:
    """``Store.files``; use it from the store's thread."""

    def __init__(
        self,
        parts: StoreInternals,
        last_index: LastIndex,
        new_files: NewFiles,
        newest_first: Callable[[], Iterator[CommitId]],
    ) -> None:
        """Read nothing yet.

        Args:
            new_files: of the commit that is being taken in.
            newest_first: names all commits.
        """
        self._parts, self._last_index = parts, last_index
        self._new_files, self._newest_first = new_files, newest_first
        self._layer_cache = LayerCache(parts.directory / "trees", self._write)

    @cached_property
    def contents(self) -> StoredContents:
        """The contents that lie in packs."""
        load_numpy()
        from relive.store.contents import StoredContents  # noqa: PLC0415 - it takes numpy

        return StoredContents(
            self._parts.packs, self._last_index, self._parts.placements.read, self._newest_first
        )

    def release_memory(self) -> None:
        """Close the packs that were read; they are opened again when they are asked for."""
        if "contents" in self.__dict__:
            self.contents.close()

    def close(self) -> None:
        """As ``release_memory``, and forget what was read."""
        self.release_memory()
        self.__dict__.pop("contents", None)

    def forget(self, commits: Collection[CommitId]) -> None:
        """These are being dropped: nothing is read of them any more."""
        if "contents" in self.__dict__:
            self.contents.forget(commits)

    # -- contents ------------------------------------------------------------------------------------------------

    def content_file(self, entry: FileEntry) -> Path:
        """A file that holds the content of a committed file, checked when it was made; for reading only.

        Raises:
            ObjectMissing, ObjectCorrupt: it is gone or damaged.
            KeyMissing, KeyWrong: it is sealed with a key that is not there.
        """
        assert entry.object is not None
        name = entry.object
        with disk_errors("reading a file", self._parts.directory):
            held = self._held_file(name)
            if held is not None:
                return held
            made = self._layer_cache.made(
                hash_bytes(f"content {name}".encode()),
                lambda target: self._write(name, target / _CONTENT),
            )
            return made / _CONTENT

    def content(self, entry: FileEntry) -> bytes:
        """The bytes of a committed file; raises as ``content_file``."""
        assert entry.object is not None
        with disk_errors("reading a file", self._parts.directory):
            held = self._held_file(entry.object)
            return self.contents.read(entry.object) if held is None else held.read_bytes()

    def write_content(self, entry: FileEntry, path: Path) -> None:
        """Make a new file with the content of a committed file, checked; raises as ``content_file``."""
        assert entry.object is not None
        with disk_errors("writing a file", path.parent):
            self._write(entry.object, path)

    def _write(self, name: str, path: Path) -> None:
        held = self._held_file(name)
        if held is None:
            self.contents.write(name, path)
        else:
            shutil.copyfile(held, path)

    def _held_file(self, name: str) -> Path | None:
        """A file that holds the content as it is: of an older commit, checked, or one that was taken; None where there is none."""
        if name in self._new_files:
            return self._new_files.path(name)
        objects = self._parts.objects
        return objects.verified(name) if objects.path(name).exists() else None

    # -- directories ---------------------------------------------------------------------------------------------

    def lay_out_layer(self, layer: Layer) -> Path:
        """A directory with the layer's files, for reading only; raises as ``content_file``."""
        with disk_errors("laying out files", self._parts.directory):
            return self._layer_cache.get(layer)

    def fill_with_layer(self, directory: Path, layer: Layer) -> None:
        """Make the layer's files below an existing directory; raises as ``content_file``."""
        with disk_errors("laying out files", directory):
            materialize_layer(layer, directory, self._write)

    def lay_out_tree(self, name: str, make: Callable[[Path], None]) -> Path:
        """A directory that ``make`` fills the first time that one of this name is asked for; for reading only.

        Args:
            name: BLAKE3 of all that decides what is in it.
        """
        with disk_errors("laying out files", self._parts.directory):
            return self._layer_cache.made(name, make)

    def damaged_trees(self) -> list[str]:
        """Names of what was laid out and is not any more what it was then; each use finds it, too, and makes it anew."""
        with disk_errors("reading what was laid out", self._parts.directory):
            return self._layer_cache.damaged()

    def drop_damaged_trees(self) -> list[str]:
        """Put those aside, so that the next use makes them anew; returns their names."""
        with disk_errors("making anew what is derived", self._parts.directory):
            return self._layer_cache.drop_damaged()

    def drop_plain_trees(self) -> None:
        """Delete what a sealed store laid out and no branch has mounted: what is sealed does not lie about plain for longer."""
        if self._parts.format.noted_key is not None and takes_writes(self._parts.directory):
            self._layer_cache.drop_unused()

"""Page files of the commit that was laid out last, so that its next branch costs a link instead of reading packs.

Looked at on every use, so it need not be durable; may be deleted at any time. As of laid-out layers (``layer_checksums``), what the
kernel says of a file (inode, size, time of modification) is looked at each time, and its bytes where that has changed or the last
look at them is a minute old: many branches in a row pay for one hash. The time of change cannot be looked at: each link changes it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from relive.kernel.atomic_write import Durability, replace_file
from relive.model.commit import ImageFile
from relive.store.objects import hash_file

__all__ = ["ImageCache"]

_BYTES_EVERY = 60.0  # [s]
_CHECKED = ".checked"


class ImageCache:
    """Files named by the BLAKE3 of their content. Safe for several processes at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)

    def link_page_file(self, image: ImageFile, path: Path) -> bool:
        """Make ``path`` a link to the page file, if it is here and whole; returns whether it was. What was there before is gone."""
        kept = self.path(image)
        path.unlink(missing_ok=True)
        try:
            os.link(kept, path)
        except FileNotFoundError:
            return False
        if self._is_whole(image, path):
            return True
        path.unlink()
        kept.unlink(missing_ok=True)
        return False

    def _is_whole(self, image: ImageFile, path: Path) -> bool:
        found = path.stat()
        facts = f"{found.st_ino} {found.st_size} {found.st_mtime_ns}"
        note = self._directory / f"{image.object}{_CHECKED}"
        with contextlib.suppress(OSError, ValueError):
            if note.read_text() == facts and 0 <= time.time() - note.stat().st_mtime < _BYTES_EVERY:
                return True
        if hash_file(path) != image.object:
            return False
        with contextlib.suppress(OSError):  # the next one looks again then
            replace_file(note, facts.encode(), durability=Durability.NONE, shared=True)
        return True

    def open(self, image: ImageFile) -> int | None:
        """A descriptor of the page file, if it is here, which the caller closes; its content is not checked."""
        try:
            return os.open(self.path(image), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def path(self, image: ImageFile) -> Path:
        """Where the page file is, if it is here; its content is not checked."""
        return self._directory / image.object

    def replace(self, images: Iterable[ImageFile], directory: Path) -> None:
        """Keep these, which lie in ``directory`` under their names, instead of those that were kept before."""
        wanted = {image.object: image.name for image in images}
        for name in os.listdir(self._directory):
            if name.removesuffix(_CHECKED) in wanted:
                continue
            (self._directory / name).unlink(missing_ok=True)
        for kept, name in wanted.items():
            with contextlib.suppress(FileExistsError):
                os.link(directory / name, self._directory / kept)

    def clear(self) -> None:
        """Keep none."""
        self.replace([], self._directory)

"""Page files of the commit that was laid out last, so that its next branch costs a hash instead of reading packs.

Checked on every use, so it need not be durable; may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from relive.model.commit import ImageFile
from relive.store.objects import hash_file

__all__ = ["ImageCache"]


class ImageCache:
    """Files named by the BLAKE3 of their content. Safe for several processes at once."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(exist_ok=True)

    def link_page_file(self, image: ImageFile, path: Path) -> bool:
        """Make ``path`` a link to the page file, if it is here and whole; returns whether it was."""
        kept = self._directory / image.object
        try:
            os.link(kept, path)
        except FileNotFoundError:
            return False
        if hash_file(path) == image.object:
            return True
        path.unlink()
        kept.unlink(missing_ok=True)
        return False

    def open(self, image: ImageFile) -> int | None:
        """A descriptor of the page file, if it is here, which the caller closes; its content is not checked."""
        try:
            return os.open(self._directory / image.object, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None

    def keep(self, images: Iterable[ImageFile], directory: Path) -> None:
        """Keep these, which lie in ``directory`` under their names, instead of those that were kept before."""
        wanted = {image.object: image.name for image in images}
        for name in set(os.listdir(self._directory)) - wanted.keys():
            (self._directory / name).unlink(missing_ok=True)
        for kept, name in wanted.items():
            with contextlib.suppress(FileExistsError):
                os.link(directory / name, self._directory / kept)

    def clear(self) -> None:
        """Keep none."""
        self.keep([], self._directory)

"""Where the images of a commit are: a directory of files, of which a path is one of these, or memory (``store.held_images``)."""

from __future__ import annotations

from typing import Protocol

__all__ = ["ImageDirectory", "ImagePath"]


class ImagePath(Protocol):
    """An image, which need not be there."""

    @property
    def name(self) -> str:
        """As CRIU calls it."""

    def exists(self) -> bool:
        """It is there."""

    def read_bytes(self) -> bytes:
        """All of it; raises FileNotFoundError."""

    def write_bytes(self, data: bytes, /) -> int:
        """Replace it; raises OSError: the disk is full."""


class ImageDirectory(Protocol):
    """The images of one commit."""

    def __truediv__(self, name: str, /) -> ImagePath:
        """The one of a name."""

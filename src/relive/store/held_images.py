"""The images of a commit in memory: none of them is ever a file, since making some and removing them again at each of many commits
a second costs more than what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relive.store.pages.page_pool import PooledPages

__all__ = ["HeldImage", "HeldImages"]


@dataclass(frozen=True, slots=True)
class HeldImages:
    """To be read and written as a directory of files (``ImageDirectory``), but for the pages.

    Attributes:
        small: all images but those of pages, by name.
        pages: page files by name, none of which has a part of a page.
    """

    small: dict[str, bytes] = field(default_factory=dict)
    pages: Mapping[str, PooledPages] = field(default_factory=dict)

    def __truediv__(self, name: str) -> HeldImage:
        return HeldImage(self, name)


@dataclass(frozen=True, slots=True)
class HeldImage:
    """One of the small ones."""

    images: HeldImages
    name: str

    def exists(self) -> bool:
        """It is there."""
        return self.name in self.images.small

    def read_bytes(self) -> bytes:
        """All of it; raises FileNotFoundError."""
        try:
            return self.images.small[self.name]
        except KeyError:
            raise FileNotFoundError(self.name) from None

    def write_bytes(self, data: bytes) -> int:
        """Replace it."""
        self.images.small[self.name] = data
        return len(data)

"""A page file that was never written as one, since all its pages lie in other files already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["ScatteredPages"]

_PAGE = 4096


@dataclass(frozen=True, slots=True)
class ScatteredPages:
    """Its pages, one run after the other.

    Attributes:
        files: where they lie; to be there, and not to be written to, until the pages are taken in.
        runs: which of ``files``, first page in it, number of pages (> 0). Each takes a mapping of the process that reads them.
    """

    files: tuple[Path, ...]
    runs: tuple[tuple[int, int, int], ...]

    @property
    def size(self) -> int:
        """Bytes of the whole."""
        return sum(count for _, _, count in self.runs) * _PAGE

"""Which content stood at which place of a commit, in twelve bytes for each file.

It is kept beside each living service for its next commit, and a service may have changed a million files; as a mapping of
texts it would be many times as large. Places are known by a hash alone, so an answer can be wrong, once in some 10**19 / files
questions: it is good for choosing what a content is compared with, and for nothing that has to be right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relive.model.commit import Layer
from relive.store.pages.page_diff import Numbers
from relive.store.pages.table import ContentTable

__all__ = ["FilePlaces"]


class FilePlaces:
    """The contents of files by the point of their layer and their path there. Only within the process that made it."""

    def __init__(self, layers: Sequence[Layer], contents: ContentTable) -> None:
        """``contents`` has all that the layers name; what it has not is left out."""
        found = [
            (hash((layer.point, entry.path)), contents.positions[entry.object])
            for layer in layers
            for entry in layer.entries
            if entry.object is not None and entry.object in contents.positions
        ]
        pairs = np.array(found, np.int64).reshape(-1, 2)
        order = np.argsort(pairs[:, 0])
        self._hashes: Numbers = pairs[order, 0]
        self._positions = pairs[order, 1].astype(np.uint32)
        self._names = contents.names

    def get(self, place: tuple[str, str]) -> str | None:
        """The content that most probably stood there; None: certainly none did."""
        wanted = hash(place)
        at = int(np.searchsorted(self._hashes, wanted))
        if at < len(self._hashes) and self._hashes[at] == wanted:
            return self._names[int(self._positions[at])]
        return None

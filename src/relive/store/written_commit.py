"""A commit whose files are written, and neither durable nor at their places: between ``Store.write`` and ``Store.publish``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from relive.model.commit import CommitId, Manifest
from relive.store.atomic_io import FreshFile
from relive.store.ingested import IngestedImages

if TYPE_CHECKING:
    from relive.store.pages.ingest import IngestedPages

__all__ = ["MadeFile", "WrittenCommit"]

MadeFile = tuple[FreshFile, Path]
"""A file that is complete, and its place."""


@dataclass(slots=True)
class WrittenCommit:
    """It has to be published or discarded.

    Attributes:
        is_new: there was no manifest of it.
        of_pages: pack and placement; none where it has neither pages nor files.
        size: bytes that it brings the store.
        taken, pages: what the next commit is compared with; None where there is nothing, or it is remembered.
        is_remembered: it is known as one that the next is compared with.
    """

    id: CommitId
    manifest: Manifest
    is_new: bool
    file: MadeFile
    size: int
    began_monotonic_ns: int | None
    of_pages: list[MadeFile] = field(default_factory=list)
    taken: IngestedImages | None = None
    pages: IngestedPages | None = None
    is_remembered: bool = False

    def files(self) -> Iterator[MadeFile]:
        """All of them."""
        yield from self.of_pages
        yield self.file

    def discard(self) -> None:
        """Remove those that were not published. Doing it twice is no error."""
        for fresh, _ in self.files():
            fresh.discard()

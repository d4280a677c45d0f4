"""What ``Store.take_images`` returns and ``Store.add`` is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relive.model.commit import CommitId, ImageFile

if TYPE_CHECKING:
    from relive.store.pages.ingest import TakenPages

__all__ = ["TakenImages"]


@dataclass(frozen=True, slots=True)
class TakenImages:
    """Images that are durable in the store and wait for the manifest that names them.

    Attributes:
        images: for the manifest.
        stored: bytes that the store has grown by.
        parent: the commit that they refer to, None if they stand alone.
    """

    images: list[ImageFile]
    stored: int
    parent: CommitId | None
    pages: TakenPages

"""What ``Store.ingest_images`` returns and ``Store.add`` is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from relive.model.commit import CommitId, ImageFile

if TYPE_CHECKING:
    from relive.store.pages.ingest import CommitIntake

__all__ = ["IngestedImages"]


@dataclass(frozen=True, slots=True)
class IngestedImages:
    """Images that wait for the manifest that names them, in a pack that is not finished.

    Attributes:
        images: for the manifest.
        bundle: the small ones.
        parent: the commit that they refer to, None if they stand alone.
    """

    images: list[ImageFile]
    bundle: bytes
    parent: CommitId | None
    intake: CommitIntake

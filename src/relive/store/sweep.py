"""Removing what no commit needs: placements without a manifest, and packs that no placement names.

Placements are the only roots of packs. To be called with the store's lock held alone, since a commit that is being taken in
has a pack before it has a placement.
"""

from __future__ import annotations

from relive.errors import ObjectCorrupt, ObjectMissing
from relive.model.commit import CommitId
from relive.store.pages.packs import Packs
from relive.store.pages.placement import Placements

__all__ = ["sweep_packs"]


def sweep_packs(commits: set[CommitId], placements: Placements, packs: Packs) -> int:
    """Remove them; returns the bytes freed. ``commits`` are all that have a manifest."""
    there = placements.commits()
    freed = sum(placements.delete(commit_id) for commit_id in there - commits)
    needed: set[str] = set()
    for commit_id in there & commits:
        try:
            needed |= placements.packs_of(commit_id)
        except (ObjectCorrupt, ObjectMissing):
            return freed  # what a damaged one needs is not known, so no pack may go until it is dropped
    return freed + sum(packs.delete(name) for name in packs.names() - needed)

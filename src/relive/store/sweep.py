"""Removing what no commit needs: placements without a manifest, packs that no placement names, and dead parts of packs.

Placements are the only roots of packs. To be called with the store's lock held alone, since a commit that is being taken in
has a pack before it has a placement.
"""

from __future__ import annotations

import contextlib

from relive.errors import ObjectCorrupt, ObjectMissing, StoreError
from relive.model.commit import CommitId
from relive.store.pages.numpy_threads import load_numpy
from relive.store.pages.packs import Packs
from relive.store.pages.placement import Placements

__all__ = ["repack_dead", "sweep_packs"]

_REPACK_FROM = 1 << 20  # [bytes] what is dead in a smaller pack is not worth the work


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


def repack_dead(placements: Placements, packs: Packs) -> bool:
    """Move what is of use out of one pack that is mostly dead; returns whether there was one, which can be swept now.

    It only saves space: where something cannot be read, or the disk is full, all stays as it is.
    """
    large = sorted(name for name in packs.names() if packs.path(name).stat().st_size >= _REPACK_FROM)
    if not large:
        return False
    load_numpy()
    from relive.store.pages.repack import repack_one  # noqa: PLC0415 - it takes numpy

    with contextlib.suppress(StoreError, OSError):
        return repack_one(large, placements, packs)
    return False

"""Dropping commits, and what only they used.

The order: manifests, placements and packs, then for each commit its objects (from before format 5) and its line in the index. The
manifests go first, and for good: what a crash leaves of a commit is found by its line, which is the last to go, or is a pack or
placement that the next drop sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence

from relive.model.commit import CommitId
from relive.store.committed_files import CommittedFiles
from relive.store.committed_images import CommittedImages
from relive.store.index import CommitIndex
from relive.store.internals import StoreInternals
from relive.store.sweep import repack_dead, sweep_packs

__all__ = ["Dropping"]


class Dropping:
    """Of one store."""

    def __init__(
        self, parts: StoreInternals, index: CommitIndex, images: CommittedImages, files: CommittedFiles
    ) -> None:
        self._parts, self._index = parts, index
        self._images, self._files = images, files

    def drop(self, commits: Sequence[CommitId]) -> int:
        """Remove commits, the first one first; call it with the store locked alone. Returns the bytes freed."""
        self._parts.manifests.delete(commits)  # for good before all else: one that comes back must be whole
        self._images.drop_kept()
        self._files.forget(commits)
        freed = self._sweep()  # early, since the index may need a little space
        for commit_id in commits:
            freed += sum(self._parts.objects.delete(name) for name in self._index.used_only_by(commit_id))
            self._index.remove(commit_id)
        # Each time there is one less that is mostly dead.
        while repack_dead(self._parts.placements, self._parts.packs):
            freed += self._sweep()
        return freed

    def _sweep(self) -> int:
        return sweep_packs(self._parts.manifests.ids(), self._parts.placements, self._parts.packs)

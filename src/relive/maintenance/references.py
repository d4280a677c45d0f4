"""What of a store is referred to, and so what is not. Commits are the only roots: manifests name objects, placements packs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from relive.errors import RefUnknown, StoreError
from relive.maintenance.garbage import Thing
from relive.maintenance.problems import Kind
from relive.model.commit import CommitId
from relive.store.index import objects_of
from relive.store.internals import StoreInternals

__all__ = ["References", "bytes_of"]


@dataclass(slots=True)
class References:
    """What the commits that were looked at refer to.

    Attributes:
        unreadable: commits whose manifest or placement is damaged, so that what they need is not known.
    """

    objects: set[str] = field(default_factory=set)
    packs: set[str] = field(default_factory=set)
    commits: set[CommitId] = field(default_factory=set)
    unreadable: set[CommitId] = field(default_factory=set)

    def look(self, parts: StoreInternals, advance: Callable[[int], None] = lambda _: None) -> set[CommitId]:
        """Read the manifests that were not read before, and all placements anew, since they change; returns the commits.

        Args:
            advance: is told how many manifests have been read.
        """
        there = parts.manifests.ids()
        self._read_manifests(parts, there - self.commits, advance)
        self.packs = set()
        for commit_id in there & parts.placements.commits():
            try:
                self.packs |= parts.placements.packs_of(commit_id)
            except StoreError:
                self.unreadable.add(commit_id)
        return there

    def garbage(self, parts: StoreInternals, advance: Callable[[int], None] = lambda _: None) -> set[Thing]:
        """What is there and not referred to; nothing of a kind about which a damaged commit leaves a doubt.

        Sure only with the store's lock held alone: else a commit may be on its way in.
        """
        objects = parts.objects.names()
        packs, placements = parts.packs.names(), parts.placements.commits()
        there = self.look(parts, advance)
        found = {Thing(Kind.PLACEMENT, name) for name in placements - there}
        if not self.unreadable & there:
            found |= {Thing(Kind.OBJECT, name) for name in objects - self.objects}
            found |= {Thing(Kind.PACK, name) for name in packs - self.packs}
        return found

    def _read_manifests(
        self, parts: StoreInternals, commits: Iterable[CommitId], advance: Callable[[int], None]
    ) -> None:
        for number, commit_id in enumerate(commits, 1):
            advance(number)
            try:
                self.objects |= objects_of(parts.manifests.read(commit_id))
            except RefUnknown:
                continue  # dropped meanwhile
            except StoreError:
                self.unreadable.add(commit_id)
            self.commits.add(commit_id)


def bytes_of(parts: StoreInternals, thing: Thing) -> int:
    """Its size on disk, 0 if it is gone."""
    match thing.kind:
        case Kind.OBJECT:
            path = parts.objects.path(thing.name)
        case Kind.PACK:
            path = parts.packs.path(thing.name)
        case _:
            path = parts.directory / "placements" / thing.name
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0

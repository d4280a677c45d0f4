"""Checking a store: from the commits to their placements, packs and objects; signatures, hashes, and that all is there. And what is
derived from these: the index, and the files that were laid out for branches.

Nothing is locked while it looks, so commits may come and go meanwhile. What seems wrong is looked at once more at the end,
with the lock held shared: what a commit lacked that has since been dropped, or moved by repacking, is no problem.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeAlias

from relive.errors import ObjectCorrupt, ObjectMissing, RefUnknown, ReliveError, StoreError
from relive.kernel.disk_errors import disk_errors
from relive.maintenance.problems import Kind, Problem, Report
from relive.model.commit import CommitId, Manifest
from relive.store import Store
from relive.store.index import objects_of
from relive.store.internals import StoreInternals
from relive.store.manifests import has_placement
from relive.store.pages.numpy_threads import load_numpy
from relive.store.pages.packcheck import damaged_frames, read_frames
from relive.store.pages.placement import Placement

__all__ = ["Progress", "silent", "verify"]

Advance: TypeAlias = Callable[[int], None]
Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Advance]]  # as ``Terminal.progress``


@contextmanager
def silent(_what: str, _total: int) -> Iterator[Advance]:
    """No progress is shown."""
    yield lambda _done: None


def verify(
    store: Store,
    commits: Sequence[CommitId] | None = None,
    *,
    data: bool = False,
    progress: Progress = silent,
) -> Report:
    """Look whether commits can be given back.

    Args:
        commits: those to look at, with all that they need; None for all, and the tags.
        data: read every byte of packs and objects, and make every page file; else their headers, sizes, and the indexes of
            commits.

    Raises:
        StoreError, PermissionMissing: the store itself cannot be read.
    """
    with disk_errors("checking the store", store.internals.directory):
        wanted = sorted(store.internals.manifests.ids() if commits is None else commits)
        check = _Check(store.internals, progress)
        problems = check.look(wanted, (lambda _: True) if data else (lambda _: False))
        if problems:
            with store.nothing_dropped():
                there = store.internals.manifests.ids() if commits is None else set(commits)
                doubtful = {problem.name for problem in problems}
                spoiled = {commit for problem in problems for commit in problem.commits}
                again = sorted(there & spoiled.union(*(check.packs.get(name, ()) for name in doubtful)))
                problems = _Check(store.internals, silent).look(again, lambda name: data and name in doubtful)
        if commits is None:
            problems += [*_tag_problems(store), *_derived_problems(store)]
    return Report(
        len(wanted), len(check.packs), len(check.objects) + len(check.contents), check.bytes_read, problems
    )


class _Check:
    """One look at some commits.

    Attributes:
        packs, objects: for each the commits that need it.
        contents: names of those of files that lie in packs.
    """

    def __init__(self, parts: StoreInternals, progress: Progress) -> None:
        self._parts = parts
        self._progress = progress
        self._placed: dict[CommitId, tuple[Manifest, Placement]] = {}
        self._sizes: dict[str, int] = {}
        self._problems: dict[tuple[Kind, str], tuple[ReliveError, set[CommitId]]] = {}
        self.packs: dict[str, set[CommitId]] = defaultdict(set)
        self.objects: dict[str, set[CommitId]] = defaultdict(set)
        self.contents: set[str] = set()
        self.bytes_read = 0

    def look(self, commits: Sequence[CommitId], reads: Callable[[str], bool]) -> list[Problem]:
        """Look at them; ``reads`` says of which packs and objects every byte is read, and of which commits the pages."""
        with self._progress("Reading manifests", len(commits)) as advance:
            for number, commit_id in enumerate(commits, 1):
                self._look_at_names(commit_id)
                advance(number)
        self._look_at_packs(reads)
        with self._progress("Reading indexes", len(self._placed)) as advance:
            for number, commit_id in enumerate(self._placed, 1):
                self._look_at_index(commit_id)
                advance(number)
        self._look_at_page_files([commit_id for commit_id in self._placed if reads(commit_id)])
        self._look_at_objects(reads)
        return [
            Problem(kind, name, error.code, str(error), sorted(spoiled))
            for (kind, name), (error, spoiled) in sorted(self._problems.items())
        ]

    def _note(self, kind: Kind, name: str, error: ReliveError, commits: Collection[CommitId]) -> None:
        _, spoiled = self._problems.setdefault((kind, name), (error, set()))
        spoiled.update(commits)

    def _look_at_names(self, commit_id: CommitId) -> None:
        try:
            manifest = self._parts.manifests.read(commit_id)
        except (StoreError, RefUnknown) as error:
            self._note(Kind.MANIFEST, commit_id, error, [commit_id])
            return
        for name in objects_of(manifest):
            self.objects[name].add(commit_id)
        self._sizes |= {
            entry.object: entry.size for layer in manifest.layers for entry in layer.entries if entry.object
        }
        if not has_placement(manifest):
            return
        try:
            placement = self._parts.placements.read(commit_id)
        except StoreError as error:
            self._note(Kind.PLACEMENT, commit_id, error, [commit_id])
            return
        self._placed[commit_id] = manifest, placement
        for name in placement.needed():
            self.packs[name].add(commit_id)

    # -- packs ---------------------------------------------------------------------------------------------------

    def _look_at_packs(self, reads: Callable[[str], bool]) -> None:
        total = sum(self._size(name) for name in self.packs if reads(name))
        with self._progress("Reading packs, bytes", total) as advance:
            for name, users in sorted(self.packs.items()):
                try:
                    if reads(name):
                        self._look_at_frames(name, advance)
                    else:
                        read_frames(self._parts.packs.path(name), name)
                except StoreError as error:
                    self._note(Kind.PACK, name, error, users)

    def _look_at_frames(self, name: str, advance: Advance) -> None:
        def count(size: int) -> None:
            self.bytes_read += size
            advance(self.bytes_read)

        damaged = damaged_frames(self._parts.packs.path(name), name, count)
        if not damaged:
            return
        error = ObjectCorrupt(
            f"pack {name[:12]} is damaged",
            cause=f"{len(damaged)} of its frames do not match their checksums: {', '.join(map(str, damaged[:9]))}",
        )
        for commit_id in self.packs[name]:
            if self._needs(commit_id, name, set(damaged)):
                self._note(Kind.PACK, name, error, [commit_id])
        self._note(Kind.PACK, name, error, [])

    def _needs(self, commit_id: CommitId, pack: str, frames: set[int]) -> bool:
        """The commit needs one of these frames of a pack; also where that cannot be told."""
        load_numpy()
        from relive.maintenance.frame_usage import frames_used  # noqa: PLC0415 - it takes numpy

        try:
            return bool(frames_used(self._placed[commit_id][1], pack, self._parts.packs) & frames)
        except StoreError:
            return True

    def _look_at_index(self, commit_id: CommitId) -> None:
        """What the index says fits the manifest and the packs; the commits of damaged packs are known already."""
        manifest, placement = self._placed[commit_id]
        if any(commit_id in spoiled for _, spoiled in self._problems.values()):
            return
        load_numpy()
        from relive.maintenance.frame_usage import check_index  # noqa: PLC0415 - it takes numpy

        try:
            self.contents |= check_index(manifest, placement, self._parts.packs)
        except StoreError as error:
            self._note(Kind.PACK, placement.packs[placement.index.pack] or "", error, [commit_id])

    def _look_at_page_files(self, commits: Sequence[CommitId]) -> None:
        """The end of all: what comes of frames, indexes and placements are the page files and files of the commits."""
        if not commits:
            return
        load_numpy()
        from relive.maintenance.frame_usage import check_contents, check_page_files  # noqa: PLC0415 - it takes numpy

        with self._progress("Making page files and files of commits", len(commits)) as advance:
            for number, commit_id in enumerate(commits, 1):
                # What is wrong with a commit already is not told in a second way.
                if not any(commit_id in spoiled for _, spoiled in self._problems.values()):
                    try:
                        check_page_files(*self._placed[commit_id], self._parts.packs)
                        check_contents(self._placed[commit_id][1], self._parts.packs)
                    except StoreError as error:
                        self._note(Kind.PLACEMENT, commit_id, error, [commit_id])
                advance(number)

    # -- objects -------------------------------------------------------------------------------------------------

    def _look_at_objects(self, reads: Callable[[str], bool]) -> None:
        with self._progress("Reading files", len(self.objects)) as advance:
            for number, (name, users) in enumerate(sorted(self.objects.items()), 1):
                try:
                    self._look_at_object(name, reads)
                except StoreError as error:
                    self._note(Kind.OBJECT, name, error, users)
                advance(number)

    def _look_at_object(self, name: str, reads: Callable[[str], bool]) -> None:
        if reads(name):
            self.bytes_read += self._parts.objects.verified(name).stat().st_size
            return
        try:
            size = self._parts.objects.path(name).stat().st_size
        except FileNotFoundError:
            raise ObjectMissing(
                f"object {name[:12]} is not in the store", cause="it was deleted or never arrived"
            ) from None
        if size != self._sizes.get(name, size):
            raise ObjectCorrupt(
                f"object {name[:12]} is damaged",
                cause=f"it has {size} bytes and should have {self._sizes[name]}",
            )

    def _size(self, name: str) -> int:
        try:
            return self._parts.packs.path(name).stat().st_size
        except FileNotFoundError:
            return 0


def _derived_problems(store: Store) -> list[Problem]:
    """What was made from manifests and packs and does not fit them: it spoils no commit, and is made anew."""
    remedy = "`relive repair` makes it anew"
    found = [
        Problem(Kind.INDEX, name, ObjectCorrupt.code, f"the index is wrong here: {what}; {remedy}", [])
        for name, what in sorted(store.index_faults(store.internals.manifests.ids()).items())
    ]
    return found + [
        Problem(
            Kind.LAID_OUT, name, ObjectCorrupt.code, f"files laid out for branches have changed; {remedy}", []
        )
        for name in store.files.damaged_trees()
    ]


def _tag_problems(store: Store) -> list[Problem]:
    """Tags that hold no id, and such whose commit is not there."""
    good, commits = store.tags(), store.internals.manifests.ids()
    problems = []
    for name in sorted(os.listdir(store.internals.directory / "tags")):
        if name not in good:
            problems.append(Problem(Kind.TAG, name, ObjectCorrupt.code, "the tag holds no commit's id", []))
        elif good[name] not in commits:
            text = f"the tag names {good[name][:10]}, which is not in the store"
            problems.append(Problem(Kind.TAG, name, RefUnknown.code, text, [good[name]]))
    return problems

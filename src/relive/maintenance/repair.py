"""Fetching what is damaged or missing from another store that still has it.

Nothing is believed of what comes: manifests, packs and objects are checked against their names, placements against their
signature. Where the other store keeps a commit's pages in other packs, those are fetched, and then its placement takes the
place of ours. What is put in place is durable, and replaces only what was damaged; so a crash at any point does no harm.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relive.errors import ObjectCorrupt, ObjectMissing, RefUnknown, SignatureInvalid, StoreError
from relive.kernel.atomic_write import sync_directory
from relive.kernel.disk_errors import disk_errors
from relive.maintenance.problems import Kind, Problem
from relive.maintenance.source import RepairSource
from relive.maintenance.verify import Progress, silent, verify
from relive.model.commit import CommitId
from relive.store import Store
from relive.store.internals import StoreInternals
from relive.store.manifests import Manifests
from relive.store.objects import hash_file
from relive.store.pages.packcheck import damaged_frames
from relive.store.pages.placement import Placements

__all__ = ["Fetched", "Repaired", "repair"]

_HELPED = {ObjectMissing.code, ObjectCorrupt.code, SignatureInvalid.code, RefUnknown.code}  # by fetching


@dataclass(frozen=True, slots=True)
class Fetched:
    """A thing that was put in place."""

    kind: Kind
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was fetched, and what is wrong still."""

    fetched: list[Fetched]
    left: list[Problem]


def repair(
    store: Store,
    source: RepairSource,
    commits: Sequence[CommitId] | None = None,
    *,
    progress: Progress = silent,
) -> Repaired:
    """Read every byte, fetch what is wrong, and look again until nothing more can be fetched.

    Args:
        commits: only what these need; None for all, and the tags.

    Raises:
        DiskFull, StoreError: it could not go on; what was fetched before is in place.
    """
    parts, tried, fetched = store.internals, set[tuple[Kind, str]](), list[Fetched]()
    with disk_errors("repairing the store", parts.directory):
        while True:
            problems = verify(store, commits, data=True, progress=progress).problems
            fresh = [one for one in problems if (one.kind, one.name) not in tried and one.code in _HELPED]
            if not fresh:
                return Repaired(fetched, problems)
            tried |= {(one.kind, one.name) for one in fresh}
            staging = store.stage()
            try:
                with store.nothing_dropped(), progress("Fetching", len(fresh)) as advance:
                    mending = _Mending(parts, source, staging.directory)
                    for number, problem in enumerate(fresh, 1):
                        mending.mend(problem)
                        advance(number)
                fetched += mending.fetched
            finally:
                staging.discard()
            if any(one.kind is Kind.MANIFEST for one in mending.fetched):
                Store(parts.directory, parts.keyring).close()  # it enters them in the index


class _Mending:
    """One round: each thing is fetched to ``directory`` and moved from there."""

    def __init__(self, parts: StoreInternals, source: RepairSource, directory: Path) -> None:
        self._parts = parts
        self._source = source
        self._directory = directory
        self.fetched: list[Fetched] = []

    def mend(self, problem: Problem) -> None:
        """Fetch what it needs, if the source has that whole."""
        match problem.kind:
            case Kind.MANIFEST:
                self._mend_manifest(CommitId(problem.name))
            case Kind.TAG:
                for commit_id in problem.commits:
                    self._mend_manifest(commit_id)
            case Kind.PLACEMENT:
                self._mend_placement(CommitId(problem.name))
            case Kind.OBJECT:
                self._mend_object(problem.name)
            case Kind.PACK:
                if not self._mend_pack(problem.name):
                    for commit_id in problem.commits:
                        self._mend_placement(commit_id)

    def _mend_manifest(self, commit_id: CommitId) -> None:
        directory = self._directory / "manifests"
        found = self._fetch(Kind.MANIFEST, commit_id, directory / f"{commit_id}.json")
        if found is None:
            return
        try:
            Manifests(directory, self._directory).read(commit_id)
        except StoreError:
            return
        self._publish(found, self._parts.directory / "manifests" / found.name, Kind.MANIFEST, commit_id)

    def _mend_object(self, name: str) -> None:
        found = self._fetch(Kind.OBJECT, name, self._directory / uuid.uuid4().hex)
        if found is not None and hash_file(found) == name:
            size = found.stat().st_size
            self._parts.objects.ingest(found)
            self.fetched.append(Fetched(Kind.OBJECT, name, size))

    def _mend_pack(self, name: str) -> bool:
        found = self._fetch(Kind.PACK, name, self._directory / uuid.uuid4().hex)
        try:
            if found is None or damaged_frames(found, name):
                return False
        except StoreError:
            return False
        self._publish(found, self._parts.packs.path(name), Kind.PACK, name, mode=0o400)
        return True

    def _mend_placement(self, commit_id: CommitId) -> None:
        """Their placement, after all packs that it needs and that are not here whole."""
        directory = self._directory / "placements"
        found = self._fetch(Kind.PLACEMENT, commit_id, directory / commit_id)
        if found is None:
            return
        try:
            placement = Placements(directory, self._directory, self._parts.keyring).read(commit_id)
        except StoreError:
            return
        if all(self._is_whole(name) or self._mend_pack(name) for name in sorted(placement.needed())):
            target = self._parts.directory / "placements" / commit_id
            self._publish(found, target, Kind.PLACEMENT, commit_id)

    def _is_whole(self, name: str) -> bool:
        try:
            return not damaged_frames(self._parts.packs.path(name), name)
        except StoreError:
            return False

    def _fetch(self, kind: Kind, name: str, target: Path) -> Path | None:
        target.parent.mkdir(exist_ok=True)
        return target if self._source.fetch(kind, name, target) else None

    def _publish(self, found: Path, target: Path, kind: Kind, name: str, *, mode: int = 0o600) -> None:
        """Put it in place, durable on return."""
        size = found.stat().st_size
        file = os.open(found, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fchmod(file, mode)
            os.fsync(file)
        finally:
            os.close(file)
        found.replace(target)
        sync_directory(target.parent)
        self.fetched.append(Fetched(kind, name, size))

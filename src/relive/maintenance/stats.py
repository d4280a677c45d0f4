"""Reading what a store holds: sizes of all there is, and from the commits' indexes what each frame of a pack is for."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from relive.errors import NotFound, StoreError
from relive.kernel.disk_errors import disk_errors
from relive.maintenance.usage import KINDS, CommitShare, CommitUsage, Dominance, ServiceShare, share_out
from relive.maintenance.verify import Progress, silent
from relive.store import Store, StoredCommit
from relive.store.index import objects_of
from relive.store.internals import StoreInternals
from relive.store.pages.numpy_threads import load_numpy
from relive.store.pages.packcheck import read_frames
from relive.store.pages.placement import Placement

__all__ = ["StoreStats", "measure"]

_NOT_STORED = {"incoming", "making", "laid", "trees"}  # may go at any time


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds.

    Attributes:
        logical: bytes of all that the commits bring back, each counted whole.
        stored: bytes of all files of the store, but for what is on its way in and what is laid out for branches.
        dominance: of ``stored``, by what the bytes are for.
        services: the largest first; commits: the oldest first.
    """

    logical: int
    stored: int
    dominance: Dominance
    services: list[ServiceShare]
    commits: list[CommitShare]


def measure(store: Store, *, progress: Progress = silent) -> StoreStats:
    """Look at everything; commits that come or go meanwhile may be counted or not.

    Raises:
        StoreError, PermissionMissing: the store itself cannot be read.
    """
    load_numpy()
    parts = store.internals
    with disk_errors("measuring the store", parts.directory):
        sizes = {name: _size(parts.packs.path(name)) for name in parts.packs.names()}
        objects = {name: _size(parts.objects.path(name)) for name in parts.objects.names()}
        lines = sorted(store.log(), key=lambda line: (line.taken_wall_ns, line.id))
        frames = _Frames(parts)
        facts = []
        with progress("Reading indexes", len(lines)) as advance:
            for number, line in enumerate(lines, 1):
                with contextlib.suppress(NotFound):  # dropped meanwhile
                    facts.append(_facts(line, parts, frames))
                advance(number)
        used = {name for one in facts for name in one.needs}
        kinds = frames.bytes_by_kind(set(sizes) & used)
        kinds["file"] += sum(size for name, size in objects.items() if name in used)
        kinds["dead"] += sum(size for name, size in (sizes | objects).items() if name not in used)
        stored = sum(_size(path) for path in _files(parts.directory))
        kinds["list"] = max(0, stored - sum(kinds.values()))
        services, commits = share_out(facts, sizes | objects)
    dominance = {kind: kinds[kind] for kind in KINDS}
    return StoreStats(sum(one.logical for one in facts), stored, dominance, services, commits)


def _facts(line: StoredCommit, parts: StoreInternals, frames: _Frames) -> CommitUsage:
    needs: set[str] = set()
    with contextlib.suppress(StoreError):
        needs |= objects_of(parts.manifests.read(line.id))
        placement = parts.placements.read(line.id)
        needs |= placement.needed()
        frames.look(placement)
    return CommitUsage(line.id, line.name, line.taken_wall_ns, line.bytes, line.new_bytes, needs)


@dataclass(slots=True)
class _Frames:
    """For each pack, what its frames are for."""

    parts: StoreInternals
    _kinds: dict[str, dict[int, str]] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)

    def look(self, placement: Placement) -> None:
        """Note what a commit uses."""
        from relive.maintenance.frame_usage import kinds_of_frames  # noqa: PLC0415 - it takes numpy

        try:
            for name, kinds in kinds_of_frames(placement, self.parts.packs).items():
                self._kinds.setdefault(name, {}).update(kinds)
        except StoreError:
            self._unknown |= placement.needed()

    def bytes_by_kind(self, packs: set[str]) -> Counter[str]:
        """Of the frames of these packs; headers are left out."""
        found: Counter[str] = Counter()
        for name in packs:
            with contextlib.suppress(StoreError):
                otherwise = "unknown" if name in self._unknown else "dead"
                for number, frame in enumerate(read_frames(self.parts.packs.path(name), name)):
                    found[self._kinds.get(name, {}).get(number, otherwise)] += frame.stored
        return found


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return 0


def _files(directory: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(directory):
        if Path(where) == directory:
            folders[:] = [name for name in folders if name not in _NOT_STORED]
        yield from (Path(where) / name for name in names)

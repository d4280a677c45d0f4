"""Freeing what no commit needs.

1. Without a lock, everything is looked at: this takes long, and commits may come and go.
2. With the store's lock held alone, so that no commit is on its way in, what seemed to be garbage is looked at again; what is
   garbage still is condemned, or deleted if it was condemned long enough ago.
3. Packs of which most is dead are repacked, each under the lock for itself. What is of use is durable at its new place before
   the old pack goes. That one goes at once: kept for a while, it would be referred to again by the next commit of its series.

Readers take no lock: one that misses a pack looks again where its commit's pages lie (``Images.lay_out``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from relive.errors import StoreError
from relive.kernel.disk_errors import disk_errors
from relive.maintenance.condemned import read_condemned, write_condemned
from relive.maintenance.garbage import Decision, Thing, decide
from relive.maintenance.problems import Kind
from relive.maintenance.references import References, bytes_of
from relive.maintenance.verify import Progress, silent
from relive.model.commit import CommitId
from relive.store import Store
from relive.store.internals import StoreInternals
from relive.store.pages.numpy_threads import load_numpy

__all__ = ["GRACE", "Collected", "collect", "foresee"]

GRACE = 3600.0  # [s] as long as a commit may take to arrive in parts
_REPACK_FROM = 1 << 16  # [bytes] what is dead in a smaller pack is not worth the work


@dataclass(frozen=True, slots=True)
class Collected:
    """What was done, or would be.

    Attributes:
        sizes: bytes of each thing that the decision names.
        repacked: names of packs that were (would be) repacked.
        freed: bytes; where it is only foreseen, those of repacking are an estimate.
        doubtful: commits that are damaged, because of which no pack and no object is condemned.
    """

    decision: Decision
    sizes: dict[Thing, int]
    repacked: list[str]
    freed: int
    doubtful: list[str] = field(default_factory=list)


def foresee(store: Store, *, grace: float = GRACE, progress: Progress = silent) -> Collected:
    """What ``collect`` would do now; nothing is changed. What a commit on its way in needs may be named, too."""
    parts = store.internals
    with disk_errors("looking for garbage", parts.directory):
        references = References()
        garbage = _look(references, parts, progress)
        decision = _decide(parts, garbage, grace)
        sizes = {thing: bytes_of(parts, thing) for thing in garbage}
        dead = _mostly_dead(parts, references, progress)
        freed = sum(sizes[thing] for thing in decision.delete) + sum(dead.values())
    return Collected(decision, sizes, sorted(dead), freed, sorted(references.unreadable))


def collect(store: Store, *, grace: float = GRACE, progress: Progress = silent) -> Collected:
    """Condemn, delete, repack. A crash at any point leaves every commit whole.

    Args:
        grace: seconds for which garbage stays condemned before it is deleted; 0 deletes it at once.

    Raises:
        DiskFull, StoreError: it could not go on; nothing that a commit needs is gone.
    """
    parts = store.internals
    with disk_errors("freeing what nothing needs", parts.directory):
        references = References()
        suspects = _look(references, parts, progress)
        with parts.lock.held(shared=False):
            garbage = suspects & references.garbage(parts)
            decision = _decide(parts, garbage, grace)
            sizes = {thing: bytes_of(parts, thing) for thing in garbage}
            for thing in decision.delete:
                _delete(parts, thing)
            _note(parts, decision)
        freed = sum(sizes[thing] for thing in decision.delete)
        repacked = []
        large = sorted(_large(parts))
        with progress("Looking through packs", len(large)) as advance:
            for number, name in enumerate(large, 1):
                saved = _repack(parts, name)
                if saved is not None:
                    repacked.append(name)
                    freed += saved
                advance(number)
    return Collected(decision, sizes, repacked, freed, sorted(references.unreadable))


def _look(references: References, parts: StoreInternals, progress: Progress) -> set[Thing]:
    """What seems to be garbage."""
    with progress("Reading manifests", len(parts.manifests.ids())) as advance:
        return references.garbage(parts, advance)


def _decide(parts: StoreInternals, garbage: set[Thing], grace: float) -> Decision:
    return decide(garbage, read_condemned(parts), now_ns=time.time_ns(), grace_ns=int(grace * 1e9))


def _note(parts: StoreInternals, decision: Decision) -> None:
    """Write down what is condemned now, unless that is as it was."""
    before, now = read_condemned(parts), time.time_ns()
    after = dict.fromkeys(decision.condemn, now) | {thing: before[thing] for thing in decision.wait}
    if after != before:
        write_condemned(parts, after)


def _delete(parts: StoreInternals, thing: Thing) -> None:
    match thing.kind:
        case Kind.OBJECT:
            parts.objects.delete(thing.name)
        case Kind.PACK:
            parts.packs.delete(thing.name)
        case _:
            parts.placements.delete(CommitId(thing.name))


# -- repacking -----------------------------------------------------------------------------------------------------------


def _large(parts: StoreInternals) -> list[str]:
    return [name for name in parts.packs.names() if bytes_of(parts, Thing(Kind.PACK, name)) >= _REPACK_FROM]


def _repack(parts: StoreInternals, name: str) -> int | None:
    """Repack one pack if most of it is dead; returns the bytes that it saved, None if it was left as it is."""
    load_numpy()
    from relive.store.pages.repack import repack_one  # noqa: PLC0415 - it takes numpy

    with parts.lock.held(shared=False):
        before = _needed(parts)
        if before is None or name not in before:
            return None
        size = parts.packs.path(name).stat().st_size
        there = parts.packs.names()
        with contextlib.suppress(StoreError):  # a commit that cannot be read: all stays as it is
            if repack_one([name], parts.placements, parts.packs):
                added = parts.packs.names() - there
                parts.packs.delete(name)
                return size - sum(parts.packs.path(one).stat().st_size for one in added)
    return None


def _needed(parts: StoreInternals) -> set[str] | None:
    """Packs that are needed; None where a placement cannot be read."""
    references = References(commits=parts.manifests.ids())
    references.look(parts)
    return None if references.unreadable else references.packs


def _mostly_dead(parts: StoreInternals, references: References, progress: Progress) -> dict[str, int]:
    """Packs that would be repacked, with the bytes that this would free, about."""
    large: Sequence[str] = sorted(set(_large(parts)) & references.packs)
    if references.unreadable or not large:
        return {}
    load_numpy()
    from relive.store.pages.repack import dead_share  # noqa: PLC0415 - it takes numpy

    found = {}
    with progress("Looking through packs", len(large)) as advance:
        for number, name in enumerate(large, 1):
            with contextlib.suppress(StoreError):
                share = dead_share(name, parts.placements, parts.packs)
                if share is not None:
                    found[name] = int(bytes_of(parts, Thing(Kind.PACK, name)) * share)
            advance(number)
    return found

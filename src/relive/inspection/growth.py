"""What only grew from commit to commit: a leak, or what looks like one. Pure; the numbers are of ``inspection.python``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from pydantic import Field

from relive.inspection.python.values import PythonCensus
from relive.model.value import Value

__all__ = ["GrownCollection", "GrownType", "grown_collections", "grown_types", "kept_entries"]

_LEAST_BYTES = 1024


class GrownType(Value):
    """A type of which each commit has more objects than the one before.

    Attributes:
        counts, sizes: objects, and their bytes, of each commit in order.
        held_by: through what one that is new since the first commit is held in the last; None: that cannot be told.
    """

    name: str
    counts: list[int]
    sizes: list[int]
    held_by: str | None = None


class GrownCollection(Value):
    """A collection that has more entries in each commit than in the one before.

    Attributes:
        path: from one of the service's own modules.
        counts, sizes: entries, and its bytes without theirs, of each commit in order.
        kept: entries (of a mapping, keys) that the first commit lacks, and all later ones have; a few.
    """

    path: str
    type: str
    counts: list[int]
    sizes: list[int]
    kept: list[str] = Field(default=[])


def grown_types(found: Sequence[PythonCensus]) -> list[GrownType]:
    """Those with more objects each time, by bytes gained."""
    grown = []
    for name in _in_all([one.types for one in found]):
        counts, sizes = zip(*(one.types.get(name, (0, 0)) for one in found), strict=True)
        if _only_grew(counts) and sizes[-1] - sizes[0] >= _LEAST_BYTES:
            grown.append(GrownType(name=name, counts=list(counts), sizes=list(sizes)))
    return sorted(grown, key=lambda one: (one.sizes[0] - one.sizes[-1], one.name))


def grown_collections(found: Sequence[PythonCensus]) -> list[GrownCollection]:
    """Those with more entries each time, by entries gained."""
    grown = []
    for path in _in_all([one.collections for one in found]):
        kind = found[-1].collections[path][0]
        counts, sizes = zip(*(one.collections.get(path, ("", 0, 0))[1:] for one in found), strict=True)
        if _only_grew(counts):
            grown.append(GrownCollection(path=path, type=kind, counts=list(counts), sizes=list(sizes)))
    return sorted(grown, key=lambda one: (one.counts[0] - one.counts[-1], one.path))


def kept_entries(entries: Sequence[Sequence[str]], most: int) -> list[str]:
    """Those that the first lacks and all others have, in the order of the second, so the oldest first."""
    first, *later = (frozenset(one) for one in entries)
    return [one for one in entries[1] if one not in first and all(one in other for other in later)][:most]


def _in_all(found: Sequence[Mapping[str, object]]) -> list[str]:
    """Names of the last that were in each before, too, but for the first: it may have had none yet."""
    return [name for name in found[-1] if all(name in one for one in found[1:])]


def _only_grew(counts: Sequence[int]) -> bool:
    return all(before < after for before, after in pairwise(counts))

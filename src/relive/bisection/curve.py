"""How probable a failure is from each of several commits: which of them are asked, and how often. Pure.

Half of them are spread evenly from the first to the last, so that a slow change is seen; the others lie around each change, where
a curve is steep.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relive.bisection.search import Span

__all__ = ["commits_of_curve"]


def commits_of_curve(count: int, wanted: int, spans: Sequence[Span]) -> list[int]:
    """The numbers of the commits that are asked, in their order; all of them where there are no more than ``wanted``.

    Args:
        count: commits, at least two; the first and the last are always asked.
        wanted: at least two.
        spans: where it changes.
    """
    if wanted >= count:
        return list(range(count))
    even = wanted if not spans else max(2, wanted // 2)
    chosen = {round(at * (count - 1) / (even - 1)) for at in range(even)}
    for at in _around(count, spans):
        if len(chosen) >= wanted:
            break
        chosen.add(at)
    return sorted(chosen)


def _around(count: int, spans: Sequence[Span]) -> Iterator[int]:
    """The nearest to each change first, on either side."""
    for distance in range(count):
        for span in spans:
            for at in (span.before - distance, span.after + distance):
                if 0 <= at < count:
                    yield at

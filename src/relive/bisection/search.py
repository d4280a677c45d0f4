"""Which commit is probed next, where each always says the same: pure.

Commits are numbered from 0 in the order in which they were taken.

1. Two judged neighbours that differ have a jump between them: the commit nearest to the middle between them is next, as long
   as there is one that was not probed. So one jump of n commits takes log2(n) probes.
2. With no such pair left, up to a given number of further probes look into the widest spans between neighbours that agree: a
   state that heals, a cache that expires, jumps more than once. One that contradicts makes pairs for the first rule.

Where the first commit tells nothing (``with_open_begin``), it and those like it, up to the first that was judged, count as before
the jump: what is found is from where on it is bad.

What is found are jumps that are there, each exact but for commits that could not be judged. That there are no others is not
promised.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from relive.bisection.judgement import Judgement

__all__ = ["Span", "jumps", "likely_probes", "next_probe", "with_open_begin"]

_AGREES = 0.9  # how likely a commit says what the two say between which it lies, where they agree
_MOST_CASES = 50  # that are gone through for probes that may come


@dataclass(frozen=True, slots=True)
class Span:
    """From one judged commit to the next.

    Attributes:
        unjudged: those between, which told nothing or were not asked.
    """

    before: int
    after: int
    unjudged: tuple[int, ...] = ()


def next_probe(known: Mapping[int, Judgement], *, further: int) -> int | None:
    """The commit to be probed; None where nothing is left to be found out.

    Args:
        known: of commits that were probed; the first and the last are among them.
        further: probes that may still be spent by rule 2.
    """
    narrowed = [(span, open_) for span in jumps(known) if (open_ := _open(span, known))]
    if narrowed:
        return _middle(*narrowed[0])
    if further <= 0:
        return None
    wide = [(span, open_) for span in _agreeing(known) if (open_ := _open(span, known))]
    if not wide:
        return None
    return _middle(*max(wide, key=lambda one: (len(one[1]), -one[0].before)))


def likely_probes(known: Mapping[int, Judgement], *, further: int) -> Iterator[int]:
    """The probe that is next, and those that may follow it, the likelier first, each once.

    Args:
        known, further: as for ``next_probe``.
    """
    cases = [(-1.0, 0, dict(known), further)]  # the likeliest first; of equals the one that was found first
    told: set[int] = set()
    for count in range(_MOST_CASES):
        if not cases:
            return
        chance, _, so_far, left = heapq.heappop(cases)
        at = next_probe(so_far, further=left)
        if at is None:
            continue
        if at not in told:
            told.add(at)
            yield at
        left -= next_probe(so_far, further=0) is None
        for said, share in _likely(so_far, at).items():
            heapq.heappush(cases, (chance * share, 2 * count + len(cases), {**so_far, at: said}, left))


def _likely(known: Mapping[int, Judgement], at: int) -> dict[Judgement, float]:
    """How likely a commit between two judged ones is good and bad."""
    around = next(span for span in _spans(known) if span.before < at < span.after)
    before, after = known[around.before], known[around.after]
    if before is not after:
        return {before: 0.5, after: 0.5}
    other = Judgement.GOOD if before is Judgement.BAD else Judgement.BAD
    return {before: _AGREES, other: 1 - _AGREES}


def jumps(known: Mapping[int, Judgement]) -> list[Span]:
    """Neighbours that differ, first to last."""
    return [span for span in _spans(known) if known[span.before] is not known[span.after]]


def with_open_begin(known: Mapping[int, Judgement]) -> dict[int, Judgement]:
    """What is known, with those good that told nothing and lie before every commit that was judged."""
    earliest = min(at for at, said in known.items() if said in (Judgement.GOOD, Judgement.BAD))
    return {
        at: Judgement.GOOD if said is Judgement.SKIPPED and at < earliest else said
        for at, said in known.items()
    }


def _agreeing(known: Mapping[int, Judgement]) -> list[Span]:
    return [span for span in _spans(known) if known[span.before] is known[span.after]]


def _spans(known: Mapping[int, Judgement]) -> Iterator[Span]:
    judged = sorted(at for at, said in known.items() if said in (Judgement.GOOD, Judgement.BAD))
    for before, after in pairwise(judged):
        yield Span(before, after, tuple(range(before + 1, after)))


def _open(span: Span, known: Mapping[int, Judgement]) -> list[int]:
    return [at for at in range(span.before + 1, span.after) if at not in known]


def _middle(span: Span, open_: list[int]) -> int:
    middle = (span.before + span.after) / 2
    return min(open_, key=lambda at: (abs(at - middle), at))

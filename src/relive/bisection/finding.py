"""Probing until it is known where the judgement, or its rate, changes, or until no more probes may be made."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relive.bisection.judgement import Judged, Judgement
from relive.bisection.posterior import ProbeCounts, jump_posterior, most_telling, no_jump, two_jumps
from relive.bisection.search import Span, jumps, likely_probes, next_probe, with_open_begin
from relive.errors import UsageError

__all__ = ["Foresee", "Jumps", "ProbesMade", "find_jumps", "find_rate_jumps", "probe_again"]

_MOST_FAILED = 3  # probes that fail before it is given up
_TOLD_AT_ONCE = 5  # probes of each further commit, where each says so sometimes only
_SKIPS = 2  # probes of one commit that tell nothing before it is left out


@dataclass(slots=True)
class ProbesMade:
    """All probes by the commits' numbers, in the order in which they were made."""

    count: int
    probes: list[tuple[int, Judged]] = field(default_factory=list)

    def known(self) -> dict[int, Judgement]:
        """What each commit said last."""
        return {at: judged.judgement for at, judged in self.probes}

    def counts(self) -> list[ProbeCounts]:
        """Good and bad probes of every commit."""
        found = [ProbeCounts()] * self.count
        for at, judged in self.probes:
            if judged.judgement in (Judgement.GOOD, Judgement.BAD):
                found[at] = found[at] + ProbeCounts(
                    bad=int(judged.judgement is Judgement.BAD), good=int(judged.judgement is Judgement.GOOD)
                )
        return found

    def failed(self) -> list[tuple[int, Judged]]:
        """Probes that crashed, hung, or had no branch."""
        return [(at, judged) for at, judged in self.probes if judged.judgement is Judgement.FAILED]

    def useless(self) -> frozenset[int]:
        """Commits that told nothing so often that they are not asked again."""
        undecided = [
            at for at, judged in self.probes if judged.judgement in (Judgement.SKIPPED, Judgement.FAILED)
        ]
        return frozenset(at for at in undecided if undecided.count(at) >= _SKIPS)


@dataclass(frozen=True, slots=True)
class Jumps:
    """What was found.

    Attributes:
        spans: where it changes, first to last; empty where that cannot be told.
        posterior: for each commit the probability that the jump is right before it; None where each probe says the same.
        no_jump: the probability that there is none; two: that there are two (both None as above).
        why_not: why nothing was found, or not all; None where all is well.
    """

    evidence: ProbesMade
    spans: list[Span]
    posterior: list[float] | None = None
    no_jump: float | None = None
    two: float | None = None
    why_not: str | None = None


Foresee = Callable[[Iterable[int]], None]
"""Told before a probe which commits will likely be probed next, that one first: what can ask several at one time may begin."""


def _nothing_ahead(_likely: Iterable[int]) -> None:
    """One commit is asked after the other."""


class _Prober:
    """Asks, keeps what was said, and gives up in time."""

    def __init__(
        self,
        count: int,
        probe: Callable[[int], Judged],
        most: int,
        done: Callable[[int], None],
        foresee: Foresee,
    ) -> None:
        self.evidence = ProbesMade(count)
        self._probe, self._most, self._done, self._foresee = probe, most, done, foresee

    @property
    def is_spent(self) -> bool:
        return len(self.evidence.probes) >= self._most

    def foresee(self, likely: Iterable[int]) -> None:
        """Told before ``ask``, see ``Foresee``; of no more than may still be asked."""
        self._foresee(itertools.islice(likely, self._most - len(self.evidence.probes)))

    def ask(self, at: int) -> Judgement:
        """Raises UsageError where the predicate itself is at fault."""
        judged = self._probe(at)
        self.evidence.probes.append((at, judged))
        self._done(len(self.evidence.probes))
        failed = self.evidence.failed()
        if judged.is_final or len(failed) >= _MOST_FAILED:
            seen = dict.fromkeys(one.seen for _, one in failed)
            raise UsageError(
                "the predicate does not judge the commits",
                cause=f"{'; '.join(seen)} ({len(failed)} of {len(self.evidence.probes)} probes)",
                remedy="try it with `relive eval` or `relive exec`; status 125 of a command skips a commit",
            )
        return judged.judgement


def find_jumps(
    count: int,
    probe: Callable[[int], Judged],
    *,
    further: int,
    most: int,
    is_good_named: bool = True,
    is_bad_named: bool = True,
    done: Callable[[int], None] = lambda _probes: None,
    foresee: Foresee = _nothing_ahead,
) -> Jumps:
    """Where each commit always says the same; see ``search``.

    Args:
        count: commits; the first is said to be good, the last to be bad.
        further: probes that look for further jumps; most: of all probes.
        is_good_named: whoever asks has said that the first is good. Else it is only the first there is, and may tell nothing.
        is_bad_named: whoever asks has said that the last is bad. Else it is only the last before an incident.
        done: called with the number of probes so far.
        foresee: see ``Foresee``.

    Raises:
        UsageError: the first is bad, the last is good, or the predicate crashes or hangs.
    """
    prober = _Prober(count, probe, most, done, foresee)
    as_said = {0: Judgement.GOOD, count - 1: Judgement.BAD}
    prober.foresee(itertools.chain([count - 1, 0], likely_probes(as_said, further=further)))
    if (said := prober.ask(count - 1)) is not Judgement.BAD:
        seen = prober.evidence.probes[-1][1].seen
        if said is Judgement.GOOD and not is_bad_named:
            raise _good_to_the_last(seen)
        raise _contradiction(Judgement.BAD, said, seen)
    said = prober.ask(0)
    is_begin_open = said is Judgement.SKIPPED and not is_good_named
    if said is not Judgement.GOOD and not is_begin_open:
        seen = prober.evidence.probes[-1][1].seen
        raise _contradiction(Judgement.GOOD, said, seen) if is_good_named else _bad_from_the_first(said, seen)
    why_not = None

    def known() -> Mapping[int, Judgement]:
        found = prober.evidence.known()
        return with_open_begin(found) if is_begin_open else found

    while (at := next_probe(known(), further=further)) is not None:
        if prober.is_spent:
            why_not = f"{most} probes were made (--most)"
            break
        prober.foresee(likely_probes(known(), further=further))
        further -= next_probe(known(), further=0) is None
        prober.ask(at)
    spans = jumps(known())
    if Judgement.GOOD not in prober.evidence.known().values():
        why_not = "no commit before it could be judged" + (f", and {why_not}" if why_not is not None else "")
    return Jumps(prober.evidence, spans, why_not=why_not)


def probe_again(
    evidence: ProbesMade,
    commits: Sequence[int],
    probe: Callable[[int], Judged],
    *,
    times: int,
    done: Callable[[int], None] = lambda _probes: None,
    foresee: Foresee = _nothing_ahead,
) -> ProbesMade:
    """What is known with each of ``commits`` probed ``times`` times; probes of the evidence count.

    The first probes of all commits come before the second ones, so that what changes on the host meanwhile changes no commit more
    than another. One that told nothing twice is asked no more.

    Args:
        done: called with the number of further probes so far.
        foresee: see ``Foresee``.
    """
    known, made = ProbesMade(evidence.count, list(evidence.probes)), 0
    for turn in range(times):
        useless, probed = known.useless(), Counter(at for at, _ in known.probes)
        asked = [at for at in commits if at not in useless and probed[at] <= turn]
        for place, at in enumerate(asked):
            foresee(asked[place:])
            known.probes.append((at, probe(at)))
            made += 1
            done(made)
    return known


def _contradiction(wanted: Judgement, said: Judgement, seen: str) -> UsageError:
    which, option = ("last", "--bad") if wanted is Judgement.BAD else ("first", "--good")
    if said is Judgement.FAILED:
        return UsageError(
            f"the predicate failed in the {which} commit ({option}), which is no judgement",
            cause=seen,
            remedy="mend it; `relive eval COMMIT EXPRESSION` tries an expression, `relive restore` and `relive exec` a command",
        )
    if said is Judgement.SKIPPED:
        return UsageError(
            f"the {which} commit ({option}) cannot be judged",
            cause=seen,
            remedy="name another (`relive log`)",
        )
    return UsageError(
        f"the {which} commit ({option}) is {said.value}, not {wanted.value}",
        cause=seen,
        remedy="name another (`relive log`), or turn the predicate round",
    )


def _good_to_the_last(seen: str) -> UsageError:
    """The last commit before an incident, which nobody has said to be bad."""
    return UsageError(
        "the failing request alone does not fail from any commit asked: it is good in the last one before the incident",
        cause=f"what makes it fail came after that commit ({seen}), or is the time at which it came or another request beside it: "
        "alone it is sent at once, with the clock of the commit; or it fails now and then only",
        remedy="`relive why` finds which request after it, which answer or which reading of the clock is needed; "
        "--every request commits before each request",
    )


def _bad_from_the_first(said: Judgement, seen: str) -> UsageError:
    """The first commit there is, which nobody has said to be good."""
    if said is Judgement.FAILED:
        return _contradiction(Judgement.GOOD, said, seen)
    return UsageError(
        "it is bad from the first commit there is",
        cause=seen,
        remedy="what made it so came before that commit, or it needs no state: `relive reproduce` tries it without any; "
        "the setting `keep` says how many commits stay",
    )


def find_rate_jumps(
    count: int,
    probe: Callable[[int], Judged],
    *,
    confidence: float,
    further: int,
    most: int,
    done: Callable[[int], None] = lambda _probes: None,
    foresee: Foresee = _nothing_ahead,
) -> Jumps:
    """Where a commit may say good once and bad another time; see ``posterior``, and ``find_jumps``.

    Args:
        confidence: how probable the jump has to be before it is told, above 0.5 and below 1.
        further: commits beside those that the jump asks for, which are probed several times for a second jump.
    """
    prober = _Prober(count, probe, most, done, foresee)
    _narrow(prober, confidence)
    _look_further(prober, further)
    _narrow(prober, confidence)  # what was seen elsewhere may have made it doubtful again
    return _rate_jumps(prober.evidence, confidence)


def _narrow(prober: _Prober, confidence: float) -> None:
    """Probe until one jump, or two, are probable enough."""
    while not prober.is_spent and not _rate_jumps(prober.evidence, confidence).spans:
        counts = prober.evidence.counts()
        useless = prober.evidence.useless()
        at = most_telling(counts, jump_posterior(counts), useless)
        if at is None:
            return
        prober.foresee(_likely_tellers(counts, at, useless))
        prober.ask(at)


def _likely_tellers(counts: list[ProbeCounts], at: int, useless: frozenset[int]) -> Iterator[int]:
    """A commit, and which one tells most should it be bad, or good; where that is the same again, it is told again."""
    yield at
    for said in (ProbeCounts(bad=1), ProbeCounts(good=1)):
        then = [*counts[:at], counts[at] + said, *counts[at + 1 :]]
        following = most_telling(then, jump_posterior(then), useless)
        if following is not None:
            yield following


def _look_further(prober: _Prober, further: int) -> None:
    """Probe the middles of the widest spans that were not looked into."""
    for _ in range(further):
        probed = sorted({0, prober.evidence.count - 1} | set(prober.evidence.known()))
        span = max(itertools.pairwise(probed), key=lambda pair: pair[1] - pair[0])
        if span[1] - span[0] < 2:
            return
        for asked in range(_TOLD_AT_ONCE):
            if prober.is_spent:
                return
            prober.foresee([sum(span) // 2] * (_TOLD_AT_ONCE - asked))
            prober.ask(sum(span) // 2)


def _rate_jumps(evidence: ProbesMade, confidence: float) -> Jumps:
    """What the evidence says by now."""
    counts = evidence.counts()
    posterior, none = jump_posterior(counts), no_jump(counts)
    second = two_jumps(counts)
    two = second.probability if second is not None else None
    if second is not None and second.probability >= confidence:
        spans = [_span(counts, second.first), _span(counts, second.second)]
        return Jumps(evidence, spans, posterior, none, two)
    if max(posterior) >= confidence and none <= 1 - confidence:
        at = posterior.index(max(posterior))
        return Jumps(evidence, [Span(at - 1, at)], posterior, none, two)
    why = "one rate for all explains it as well" if none > 1 - confidence else "no commit is probable enough"
    return Jumps(
        evidence, [], posterior, none, two, f"{why} after {len(evidence.probes)} probes (--most allows more)"
    )


def _span(counts: list[ProbeCounts], second: int) -> Span:
    """From the last commit before ``second`` that was probed."""
    first = max((at for at in range(second) if counts[at].bad + counts[at].good), default=second - 1)
    return Span(first, second, tuple(range(first + 1, second)))

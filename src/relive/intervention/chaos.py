"""The search for a schedule under which a replay ends otherwise, and for the few delays that do it.

1. Under no schedule it is replayed twice: what it does so is the usual end. Where it fails each time, the harm may have been done
   before the commit: the search goes on from an earlier one, if whoever asks has one.
2. Seeds are tried one after the other until one ends otherwise, or enough ended as usual.
3. The delays that really were in that run are tried alone, without what else the seed varies; where that is not enough, with it.
4. Delta debugging leaves the fewest of them.
5. What changed places is told from two runs that differ in little: in one delay, or in the length of a single one.
6. Delays that are just long enough are made longer, so that they do it each time.

Timing decides, so a question is asked twice before it counts as "not enough".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

from relive.intervention.living import BoundsReached
from relive.intervention.minimal import fewest
from relive.intervention.schedules import Schedule, schedule_of
from relive.intervention.swaps import swap_between
from relive.intervention.varying import VariedRun
from relive.model.chaos import Swap

__all__ = ["ChaosSearch", "Found", "LivesUnderSchedules"]

_PLAIN = 2
_TRIES = 2
_AGAIN = 3
_HALVINGS = 5
_FACTORS = (1, 2, 4)
_MOST_UNKNOWN = 3
_NOT_ALONE = "the delays of such a run do not do it again by themselves, so they could not be reduced; the seed is what is known"


class LivesUnderSchedules(Protocol):
    """What the search asks: ``varying.Variation``.

    Attributes:
        near: requests that odd seeds delay, see ``schedules.schedule_of``.
    """

    @property
    def near(self) -> frozenset[str]:
        """Of what is replayed."""

    def live(self, schedule: Schedule | None) -> VariedRun:
        """One replay; raises BoundsReached."""


@dataclass(slots=True)
class Found:
    """A schedule under which it ended otherwise.

    Attributes:
        schedule: of the seed; other: a run with it, or with ``delays``; usual: the nearest run that ended as ever.
        delays: that are enough; narrowed: without what else the seed varies and without those that were not needed.
        again: how often ``delays`` did it, of how many replays.
    """

    schedule: Schedule
    other: VariedRun
    usual: VariedRun
    delays: dict[str, float]
    narrowed: bool = False
    again: tuple[int, int] | None = None
    swap: Swap | None = None


@dataclass(slots=True)
class ChaosSearch:
    """One search; what it has found by then stays when its bounds are reached.

    Attributes:
        wanted: so many seeds have to end as usual before it is given up.
        earlier: what to ask instead where it fails each time under no schedule; None: there is nothing.
        plain: the runs under no schedule; clean: seeds that ended as usual; tried: all seeds that were.
        why_not: what could not be told.
    """

    lab: LivesUnderSchedules
    wanted: int
    tell: Callable[[str], None] = lambda _text: None
    earlier: Callable[[], LivesUnderSchedules | None] = lambda: None
    plain: list[VariedRun] = field(default_factory=list)
    tried: int = 0
    clean: int = 0
    found: Found | None = None
    why_not: str | None = None

    def run(self, first_seed: int) -> None:
        """Search."""
        try:
            self._search(first_seed)
            if self.found is not None:
                self._narrow(self.found)
        except BoundsReached as reached:
            self.why_not = self.why_not or f"{reached}, and it was not over by then"

    @property
    def usual(self) -> bool:
        """Whether it fails under no schedule."""
        return all(one.fails for one in self.plain)

    def _replay_plainly(self) -> None:
        self.plain = [self.lab.live(None) for _ in range(_PLAIN)]

    def _search(self, first_seed: int) -> None:
        self._replay_plainly()
        earlier = self.earlier() if self.usual else None
        if earlier is not None:
            self.lab = earlier
            self._replay_plainly()
        if any(one.fails is None for one in self.plain):
            self.why_not = _unknown(self.plain)
            return
        if len({one.fails for one in self.plain}) > 1:
            self.why_not = (
                "it fails now and then under no schedule already, so a schedule that does it says little"
            )
        unknown = 0
        for seed in count(first_seed):
            if self.clean >= self.wanted:
                return
            schedule = schedule_of(seed, self.lab.near)
            lived = self.lab.live(schedule)
            self.tried += 1
            if lived.fails is None:
                unknown += 1
                if unknown >= _MOST_UNKNOWN and not self.clean:
                    self.why_not = _unknown([lived])
                    return
            elif lived.fails is not self.usual:
                usual = next(one for one in self.plain if one.fails is self.usual)
                self.tell(f"Seed {seed} ends otherwise: {schedule.words}.")
                self.found = Found(schedule, lived, usual, dict(lived.delays))
                return
            else:
                self.clean += 1

    def _narrow(self, found: Found) -> None:
        base = self._base(found)
        if base is None:
            found.again, again = self._count(found.schedule)
            if (
                again is not None
            ):  # the seed does it with other delays, too: they follow from what the replay does
                found.other, found.delays = again, dict(again.delays)
                base = self._base(found)
        if base is None:
            self.why_not = self.why_not or _NOT_ALONE
            return
        found.again = None  # that was of the seed
        self._fewest(found, base)
        self._without_one(found, base)
        found.swap = swap_between(found.usual.order, found.other.order, found.delays)
        self._make_steady(found, base)

    def _base(self, found: Found) -> Schedule | None:
        """With nothing varied but delays if that is enough; None: even with all it did not come again."""
        if not found.delays:
            return None
        alone = found.schedule.delaying(found.delays, only=True)
        for base in (alone, found.schedule):
            other = self._other_end(base.delaying(found.delays))
            if other is not None:
                found.other, found.narrowed = other, base is alone
                return base
        return None

    def _fewest(self, found: Found, base: Schedule) -> None:
        def enough(part: Sequence[tuple[str, float]]) -> bool:
            other = self._other_end(base.delaying(dict(part)))
            if other is None:
                return False
            if len(part) < len(found.delays):
                found.other, found.delays = other, dict(part)
            return True

        if len(found.delays) > 1:
            self.tell(f"Narrowing {len(found.delays)} delays.")
        fewest(list(found.delays.items()), enough)

    def _without_one(self, found: Found, base: Schedule) -> None:
        """The nearest run that ends as usual: with a shorter delay, or with one less."""
        if len(found.delays) == 1:
            self._shorten(found, base)
            return
        for place in reversed(found.delays):
            less = {one: ms for one, ms in found.delays.items() if one != place}
            lived = self.lab.live(base.delaying(less))
            if lived.fails is self.usual:
                found.usual = lived
                return

    def _shorten(self, found: Found, base: Schedule) -> None:
        ((place, longest),) = found.delays.items()
        shortest = 0.0
        for _ in range(_HALVINGS):
            middle = (shortest + longest) / 2
            lived = self._any(base.delaying({place: middle}))
            if lived.fails is (not self.usual):
                longest, found.other = middle, lived
            elif lived.fails is self.usual:
                shortest, found.usual = middle, lived

    def _make_steady(self, found: Found, base: Schedule) -> None:
        """Lengthen what is just long enough now and then, until it does it each time; if nothing does, it stays as it was."""
        delays = found.delays
        for factor in _FACTORS:
            longer = {place: ms * factor for place, ms in delays.items()}
            again, _ = self._count(base.delaying(longer))
            if found.again is None or again > found.again:
                found.again, found.delays = again, longer
            if again[0] == again[1]:
                break

    def _other_end(self, schedule: Schedule) -> VariedRun | None:
        lived = self._any(schedule)
        return lived if lived.fails is (not self.usual) else None

    def _any(self, schedule: Schedule) -> VariedRun:
        """The first run that does not end as usual, of a few; else the last."""
        lived = self.lab.live(schedule)
        for _ in range(1, _TRIES):
            if lived.fails is (not self.usual):
                break
            lived = self.lab.live(schedule)
        return lived

    def _count(self, schedule: Schedule) -> tuple[tuple[int, int], VariedRun | None]:
        """(how many ended otherwise, of how many); the last of these."""
        runs = [self.lab.live(schedule) for _ in range(_AGAIN)]
        otherwise = [one for one in runs if one.fails is (not self.usual)]
        return (len(otherwise), len(runs)), otherwise[-1] if otherwise else None


def _unknown(runs: Sequence[VariedRun]) -> str:
    run = next(one for one in runs if one.fails is None).run
    if run.outcome is None:
        return f"it could not be replayed: {run.verdict.difference}"
    return f"the replay lacks what nobody recorded: {run.verdict.missing[0]}"

"""What replays under varied schedules showed, as a value."""

from __future__ import annotations

from relive.model.commit import CommitId
from relive.model.value import Value

__all__ = ["Chaos", "Delay", "Swap"]

_TYPED = 3  # delays that one would type


class Delay(Value):
    """A delay of a schedule.

    Attributes:
        place: as ``relive_chaos`` names it, or ``request:NUMBER``.
        at: after which event of which request, or before which request, in words.
    """

    place: str
    ms: float
    at: str


class Swap(Value):
    """Two events that came one way round where it passes, and the other way round where it fails.

    Attributes:
        first: the event that comes first where the plain replay's end is had; then: the one that comes after it there.
        more: how many other pairs changed places, too.
    """

    first: str
    then: str
    more: int = 0


class Chaos(Value):
    """All of one ``relive replay --chaos``.

    Attributes:
        harmed: the nearest commit before the failure, from which it fails each time, where ``commit`` is an earlier one for that.
        plain: whether each replay under no schedule failed.
        tried: schedules that were replayed; clean: of these, how many ended as the plain replay does.
        seed: of the schedule with which it ended otherwise; None: none was found.
        varied: what that schedule varies; result: how it ended, in words.
        narrowed: whether it ends so with ``delays`` alone; else all of the seed's are told.
        again: how often it ended so when ``delays`` (or the seed) were replayed again, and how often they were.
        swap: which events changed places; None where that is not known.
        run: number of the kept run whose first branch ended as the plain replay and whose second did not.
        rate_below: so surely (``confidence``) fewer schedules fail than that; None where one was found.
        why_not: what could not be told.
        sentence: all of it in one.
    """

    service: str
    incident: int | None
    request: int | None
    commit: CommitId
    harmed: CommitId | None = None
    plain: list[bool]
    tried: int
    clean: int
    seed: int | None
    varied: str | None = None
    result: str | None = None
    narrowed: bool = False
    delays: list[Delay] = []
    again: tuple[int, int] | None = None
    swap: Swap | None = None
    run: int | None = None
    rate_below: float | None = None
    confidence: float
    why_not: str | None = None
    replays: int
    seconds: float
    sentence: str

    @property
    def options(self) -> str:
        """Those of ``relive replay`` and ``keep`` that bring it back: the delays alone where they are enough, and were so again."""
        came_again = self.again is None or self.again[0] > 0
        if self.narrowed and came_again and len(self.delays) <= _TYPED:
            return " ".join(f"--delay {one.place}={one.ms:g}" for one in self.delays)
        return f"--seed {self.seed}"

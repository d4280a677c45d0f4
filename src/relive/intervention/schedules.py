"""Schedules: what makes threads and requests of a replay take turns otherwise. Pure.

A schedule follows from its seed alone, so a seed that was printed is a schedule that can be had again. It varies what rr's chaos
mode varies (how often threads are switched, their priorities, on how many processors they run), and adds delays at events: of
each *place* the seed decides whether there is a delay and how long it is. Odd seeds delay only the requests that name what the
judged request names, where there are such (``related``), and longer: where hundreds of requests are sent again, delays everywhere
seldom meet the two that race, and slow each replay. Places are those of ``relive_chaos`` in Python
processes, and ``request:NUMBER`` before a recorded request is sent, which reaches services in any language.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from typing import Any

from relive.errors import UsageError
from relive.recording.events import EventKind
from relive.replay.plan import ReplayPlan
from relive_inprocess.relive_chaos import delay_of, drawn

__all__ = [
    "DELAYED_KINDS",
    "NICEST",
    "Schedule",
    "clean_runs_wanted",
    "given_schedule",
    "held",
    "parse_delay",
    "rate_below",
    "schedule_of",
]

NICEST = 19
DELAYED_KINDS = frozenset(
    {
        *(EventKind.QUERY, EventKind.HTTP_CALL, EventKind.REDIS_COMMAND, EventKind.S3_CALL),
        *(EventKind.FILE_READ, EventKind.SUBPROCESS, EventKind.HANDLING_STARTED, EventKind.LOG_RECORD),
    }
)
_DELAY = re.compile(
    r"(?P<place>request:\d{1,15}|\d{1,9}(?::\d{1,18}){2}:b?\d{1,18})=(?P<ms>\d{1,6}(?:\.\d{1,6})?)"
)
_LONGEST_MS = 60_000.0
_RATES = (0.05, 0.2, 0.5)
_MOST_MS = (5.0, 50.0, 250.0)
_NEAR_RATES = (0.2, 0.5, 1.0)
_NEAR_MOST_MS = (50.0, 500.0, 2500.0)
_INTERVALS = (0.000005, 0.0005, 0.005, 0.05)  # [s] CPython's own is 0.005


@dataclass(frozen=True, slots=True)
class Schedule:
    """One.

    Attributes:
        rate: how many of the places have a delay; most_ms: how long one is at most.
        within: only places of these requests have one, as ``relive_chaos.request_of`` names them; None: of all.
        switch_interval: of Python, in seconds; None: as it is.
        priorities: whether threads have nice values by chance. one_processor: they run on one processor.
        delays: place to milliseconds; None: those of the seed.
    """

    seed: int
    rate: float = 0.0
    most_ms: float = 0.0
    within: frozenset[str] | None = None
    switch_interval: float | None = None
    priorities: bool = False
    one_processor: bool = False
    delays: Mapping[str, float] | None = None

    @property
    def words(self) -> str:
        """What is varied, in a line."""
        where = " of related requests" if self.within is not None else ""
        delays = (
            f"delays up to {self.most_ms:g} ms at {self.rate:.0%} of events{where}"
            if self.delays is None
            else f"{len(self.delays)} {'delay' if len(self.delays) == 1 else 'delays'}"
        )
        more = [
            f"threads switched every {self.switch_interval:g} s" if self.switch_interval is not None else "",
            "priorities by chance" if self.priorities else "",
            "one processor" if self.one_processor else "",
        ]
        return ", ".join([delays, *filter(None, more)])

    def delaying(self, delays: Mapping[str, float], *, only: bool = False) -> Schedule:
        """The same with these delays; ``only``: and with nothing else varied."""
        if only:
            return Schedule(self.seed, delays=dict(delays))
        return replace(self, delays=dict(delays))

    def question(self) -> dict[str, Any]:
        """What ``relive_chaos`` is asked for."""
        fields: dict[str, Any] = {"switch_interval": self.switch_interval, "kinds": sorted(DELAYED_KINDS)}
        return fields | self._delays()

    def delay(self, place: str) -> float:
        """Milliseconds at a place."""
        return float(delay_of(self._delays(), place))

    def nice(self, rank: int) -> int:
        """Of the thread with that rank among its process's."""
        return int(drawn(self.seed, f"nice:{rank}")[0] * (NICEST + 1)) if self.priorities else 0

    def _delays(self) -> dict[str, Any]:
        if self.delays is not None:
            return {"delays": dict(self.delays)}
        within = sorted(self.within) if self.within is not None else None
        return {"seed": self.seed, "rate": self.rate, "most_ms": self.most_ms, "within": within}


def schedule_of(seed: int, near: frozenset[str] = frozenset()) -> Schedule:
    """The schedule of a seed; ``near``: the requests that an odd one delays, if there are any (``related``)."""
    rate, most = drawn(seed, "delays")
    interval, priorities = drawn(seed, "threads")
    processors, _ = drawn(seed, "processors")
    is_near = bool(near) and seed % 2 == 1
    rates, lengths = (_NEAR_RATES, _NEAR_MOST_MS) if is_near else (_RATES, _MOST_MS)
    return Schedule(
        seed,
        rate=rates[int(rate * len(rates))],
        most_ms=lengths[int(most * len(lengths))],
        within=near if is_near else None,
        switch_interval=_INTERVALS[int(interval * len(_INTERVALS))],
        priorities=priorities < 0.5,
        one_processor=processors < 0.5,
    )


def parse_delay(text: str) -> tuple[str, float]:
    """(place, milliseconds) of ``PLACE=MS``; raises UsageError."""
    found = _DELAY.fullmatch(text)
    if found is None or float(found["ms"]) > _LONGEST_MS:
        raise UsageError(
            f"{text[:80]!r} is no delay",
            cause=f"it is not PLACE=MILLISECONDS with at most {_LONGEST_MS:g} of them",
            remedy="`relive replay --chaos` tells places, such as 5:2:1:1=110 or request:7=50",
        )
    return found["place"], float(found["ms"])


def given_schedule(
    seed: int | None, delays: Sequence[str], near: frozenset[str] = frozenset()
) -> Schedule | None:
    """Of ``--seed`` and ``--delay``; None: neither is given. With delays, of the seed the rest is taken.

    Args:
        near: as of ``schedule_of``.
    """
    if not delays:
        return schedule_of(seed, near) if seed is not None else None
    lengths = dict(map(parse_delay, delays))
    return schedule_of(seed, near).delaying(lengths) if seed is not None else Schedule(0, delays=lengths)


def held(plan: ReplayPlan, schedule: Schedule) -> tuple[ReplayPlan, dict[str, float]]:
    """(the plan with requests held back as the schedule says, their places and milliseconds)."""
    delays = {
        f"request:{step.exchange.number}": schedule.delay(f"request:{step.exchange.number}")
        for step in plan.steps
        if not step.continues
    }
    delays = {place: ms for place, ms in delays.items() if ms}
    steps = [replace(step, held_ms=delays.get(f"request:{step.exchange.number}", 0.0)) for step in plan.steps]
    return replace(plan, steps=steps), delays


def clean_runs_wanted(rate: float, confidence: float) -> int:
    """How many runs without failure make it so sure that fewer than ``rate`` of the schedules fail.

    Before any run each rate is as likely as any other, so after n clean ones the rate has the distribution Beta(1, n + 1), and is
    above r with the probability (1 - r)^(n + 1). At 95 % that is about 3 / r, the rule of three.
    """
    return max(1, ceil(log(1 - confidence) / log(1 - rate)) - 1)


def rate_below(clean: int, confidence: float) -> float:
    """Below which the rate of failing schedules is so surely, after so many clean runs; see ``clean_runs_wanted``."""
    return float(1 - (1 - confidence) ** (1 / (clean + 1)))

"""Probes in forked workers: the one that is wanted, and beside it those that will likely be wanted next.

What is found is as if they were asked one after the other: a probe counts only once it is wanted, in the order in which it is. What
was asked in vain is given up at the end, and nobody hears of it.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Self

from relive.bisection.judgement import Judged, Judgement
from relive.errors import ReliveError
from relive.operations.forked_workers import ForkedWorkers, end_with

__all__ = ["ProbesAhead"]

_KILLED = Judged(judgement=Judgement.FAILED, seen="the process that asked it was killed")


class ProbesAhead:
    """Asks commits by their numbers. A context manager; the caller must have one thread.

    Args:
        ask: called in a worker. A ReliveError that it raises is raised where that probe is wanted; anything else ends the worker.
        jobs: probes at one time; with one nothing is asked before it is wanted.
        clear_up: called at the end where a probe was given up or killed; see ``ForkedWorkers``.
    """

    def __init__(self, ask: Callable[[int], Judged], jobs: int, clear_up: Callable[[], None]) -> None:
        self._jobs = jobs
        caller = os.getpid()

        def work(number: int) -> str:
            end_with(caller)
            return _line_of(ask, number)

        # One more: what is wanted never waits for what was asked ahead.
        self._workers = ForkedWorkers(jobs + 1, work, lambda _line: None, clear_up)
        self._asked: Counter[int] = Counter()
        self._answers: defaultdict[int, deque[str | None]] = defaultdict(deque)

    def __enter__(self) -> Self:
        self._workers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._workers.__exit__()

    def foresee(self, likely: Iterable[int]) -> None:
        """Begin with what is likely wanted next, the likeliest first; a number that comes twice is wanted twice."""
        if self._jobs == 1:
            return
        wanted: Counter[int] = Counter()
        for number in islice(likely, self._jobs):
            if self._workers.busy >= self._jobs:
                return
            wanted[number] += 1
            if self._asked[number] + len(self._answers[number]) < wanted[number]:
                self._ask(number)

    def __call__(self, number: int) -> Judged:
        """What the commit says; each probe is given out once. Raises ReliveError where its probe did."""
        if not self._answers[number] and not self._asked[number]:
            self._ask(number)
        while not self._answers[number]:
            for answered, line in self._workers.wait():
                self._asked[answered] -= 1
                self._answers[answered].append(line)
        return _judged(self._answers[number].popleft())

    def _ask(self, number: int) -> None:
        self._asked[number] += 1
        self._workers.give(number)


def _line_of(ask: Callable[[int], Judged], number: int) -> str:
    try:
        return json.dumps({"judged": ask(number).model_dump(mode="json")})
    except ReliveError as error:
        return json.dumps({"error": error.as_json()})


def _judged(line: str | None) -> Judged:
    if line is None:
        return _KILLED
    told = json.loads(line)
    if "error" in told:
        raise ReliveError.from_json(told["error"])
    return Judged.model_validate(told["judged"])

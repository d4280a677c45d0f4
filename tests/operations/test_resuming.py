"""What was broken off goes on where it was, and counts nothing else. Killed servers: ``coordinator/test_killed_runs.py``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import Cancelled
from relive.incidents.runs import Runs
from relive.model.outcome import Run, Verdict, VerdictKind
from relive.model.reproduction import Attempt
from relive.operations.progress import Silent
from relive.operations.reproductions import REPRODUCE, ReproduceParams
from relive.operations.resuming import Unfinished
from relive.operations.subprocess_runner import perform_apart
from support.payments import Payments

MARK = "0" * 32


class Heard(Silent):
    """Notes the steps that it is told of, and has heard enough after so many."""

    def __init__(self, most: int = 9) -> None:
        self.steps: list[int] = []
        self._most = most

    @contextmanager
    def progress(self, _what: str, _total: int) -> Iterator[Callable[[int], None]]:
        def told(done: int) -> None:
            self.steps.append(done)
            if len(self.steps) == self._most:
                raise Cancelled("enough")

        yield told


def test_a_reproduction_goes_on_after_the_attempts_that_were_made(payments: Payments):
    settings = payments.relive.settings.model_copy(update={"mark": uuid.uuid4().hex})
    params = ReproduceParams(incident=str(payments.incident), times=2)
    first, second = Heard(most=1), Heard()
    with pytest.raises(Cancelled):
        perform_apart(REPRODUCE, settings, params, first)
    (part,) = Runs(settings.runs).parts(settings.mark or "")
    result = perform_apart(REPRODUCE, settings, params, second)
    assert (first.steps, second.steps) == ([1], [1, 2])
    assert [attempt.number for attempt in result.attempts] == [1, 2]
    assert result.attempts[0] == Attempt.model_validate_json(part.result)
    assert Runs(settings.runs).parts(settings.mark or "") == []


def run(number: int) -> Run:
    verdict = Verdict(kind=VerdictKind.REPRODUCED)
    return Run(number=number, verdict=verdict, outcome=None, forwarded=0, restore_us=1, seconds=0.5)


def test_only_runs_of_the_same_count(tmp_path: Path):
    settings = Settings(home=tmp_path, mark=MARK)
    first = Unfinished(settings, Run)
    assert (first.about, first.begin("this")) == (None, [])
    first.save(run(2))
    first.save(run(1))
    again = Unfinished(settings, Run)
    assert (again.about, again.begin("this")) == ("this", [run(1), run(2)])
    assert again.began_wall_ns == first.began_wall_ns
    other = Unfinished(settings, Run)
    assert other.begin("that") == []
    other.save(run(1))
    assert Unfinished(settings, Run).begin("that") == [run(1)]


def test_without_a_mark_nothing_is_kept(tmp_path: Path):
    unfinished = Unfinished(Settings(home=tmp_path), Run)
    unfinished.begin("this")
    unfinished.save(run(1))
    assert Runs(tmp_path / "runs.sqlite").unfinished() == []

"""Which ends of processes the agent's log tells, and what is said of a service's end."""

from __future__ import annotations

import asyncio
import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest

from relive.agent.failures.sightings import exit_sighting
from relive.agent.failures.watch import FailureWatch, is_worth_a_line
from relive.config import Settings
from relive.model.incident import Sighting
from relive.signals.messages import Exited


@pytest.mark.parametrize(
    ("pid", "status", "is_told"),
    [(70, 0, False), (70, 1 << 8, True), (70, signal.SIGKILL, True), (70, None, True), (2, 0, True)],
)
def test_of_those_that_end_well_only_the_first_is_told(pid: int, status: int | None, is_told: bool) -> None:
    assert is_worth_a_line(Exited(pid=pid, status=status), (2, None)) is is_told


@pytest.mark.parametrize(
    ("number", "before", "is_of_criu"),
    [(signal.SIGTRAP, 0.0, True), (signal.SIGTRAP, 60.0, False), (signal.SIGKILL, 0.0, False)],
)
def test_a_service_that_faults_as_criu_is_killed_died_of_that(
    number: signal.Signals, before: float, *, is_of_criu: bool
) -> None:
    """Its end may be seen before the commit has failed in which CRIU was killed."""
    reported: list[Sighting] = []

    async def report(sighting: Sighting, _at: None, **_words: None) -> Any:
        reported.append(sighting)
        return SimpleNamespace(number=1, times=1)

    async def end() -> None:
        committer: Any = SimpleNamespace(lock=asyncio.Lock(), criu_died_at=float("-inf"))
        keeper: Any = SimpleNamespace(report=report)
        capsule: Any = SimpleNamespace(facts=SimpleNamespace(root=2))
        watch = FailureWatch(Settings(), capsule, committer, keeper, None, None)  # type: ignore[arg-type]
        async with committer.lock:
            sighting = exit_sighting(int(number), stop_asked=False, now_ns=1)
            ending = asyncio.create_task(watch.report_end(sighting))
            for _ in range(8):
                await asyncio.sleep(0)
            committer.criu_died_at = time.monotonic() - before
        await ending

    asyncio.run(end())
    assert [one.from_outside for one in reported] == [is_of_criu]
    assert ("CRIU" in reported[0].summary) is is_of_criu

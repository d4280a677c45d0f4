"""A kill for want of memory is told once, whoever sees it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from relive.agent.failures import memory_kills as room
from relive.agent.failures.memory_kills import MemoryKills
from relive.model.incident import Sighting


class Failures:
    def __init__(self) -> None:
        self.told: list[Sighting] = []

    async def with_requests(self, end: Sighting, _taken: object, _since: float) -> Sighting:
        return end

    async def report(self, sighting: Sighting, _at: object, _before: object) -> None:
        self.told.append(sighting)


def test_what_is_counted_and_then_seen_as_the_end_is_one_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_SETTLE", 0.0)
    counted = [2]
    failures: Any = Failures()
    group: Any = SimpleNamespace(kills=lambda: counted[0])
    nobody: Any = None
    kills = MemoryKills(group, nobody, nobody, nobody, nobody, failures)
    assert not kills.has_just_killed(), "those before it are another's to tell"
    counted[0] = 4
    assert kills.has_just_killed()

    async def see_twice() -> None:
        await asyncio.gather(kills.report(), kills.report(137))
        await kills.report(137)

    asyncio.run(see_twice())
    assert [one.summary for one in failures.told] == [
        "the kernel killed 2 processes of the service for want of memory"
    ]

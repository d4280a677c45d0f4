"""Kills for want of memory: a commit before they come, and an incident of each."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

import structlog

from relive.agent.capsule.lives import Capsule
from relive.agent.capsule.memory_cgroup import MemoryGroup
from relive.agent.commits.committer import Committer, RateLimit
from relive.agent.commits.dumper import DumpedCommit
from relive.agent.control.background import BackgroundTasks
from relive.agent.failures.memory_pressure import Pressure
from relive.agent.failures.sightings import memory_sighting
from relive.errors import ReliveError
from relive.kernel import procfs
from relive.model.commit import CommitId, Trigger
from relive.model.incident import Sighting

__all__ = ["MemoryKills"]

_POLL = 1.0  # [s] the longest time between two looks at the group
_LITTLE = "little memory"
_PRESSED_COUNTS = 5.0  # [s] after it was little last, a kill is of that
_SETTLE = 0.3  # [s] after a kill, for the connections that it breaks
_SETTLE_MOST = 2.0  # [s] where the proxy has told of none by then: a host without memory is slow


class Failures(Protocol):
    """What sees all other failures of the service (``failures``)."""

    async def with_requests(self, end: Sighting, taken: DumpedCommit | None, since: float) -> Sighting:
        """With the requests that an end took along; ``since``: monotonic [s]."""

    async def store_capture(self, taken: DumpedCommit | None) -> CommitId | None:
        """Make durable what was taken at a failure."""

    async def report(self, sighting: Sighting, at: CommitId | None, before: CommitId | None) -> object:
        """Write down an incident."""


@dataclass(frozen=True, slots=True)
class _PressedCommit:
    """Taken when memory had become little; ``keeping`` makes it durable."""

    taken: DumpedCommit
    keeping: asyncio.Task[CommitId | None]


class MemoryKills:
    """Of one control group. Belongs to the agent's event loop."""

    def __init__(
        self,
        group: MemoryGroup,
        capsule: Capsule,
        committer: Committer,
        tasks: BackgroundTasks,
        limit: RateLimit,
        failures: Failures,
    ) -> None:
        self._group = group
        self._capsule = capsule
        self._committer = committer
        self._tasks = tasks
        self._limit = limit
        self._failures = failures
        self._log = structlog.get_logger()
        self._seen = self._reported = group.kills()
        self._killed_at = float("-inf")  # monotonic [s]
        self._pressed: _PressedCommit | None = None
        self._pressed_at = float("-inf")  # monotonic [s], when memory was little last

    async def watch(self) -> None:
        """Commit before memory runs out, and see processes killed for want of it while the service itself lives on."""
        self._seen = self._group.kills()
        pressure = Pressure(self._group)
        try:
            while True:
                await pressure.wait()
                kills, before = self._group.kills(), self._seen
                self._seen = kills
                if kills > before:
                    self._killed_at = time.monotonic()
                if kills > before and procfs.exists(self._capsule.lead):
                    self._tasks.begin(self.report())
                # In a unit's own group the agent is at home too: what a commit takes might be what the service lacks then.
                if self._group.is_ours and pressure.is_due():
                    self._pressed = await self._commit_before_it_ends()
                if pressure.is_high:
                    self._pressed_at = time.monotonic()
        finally:
            pressure.close()

    def has_just_killed(self) -> bool:
        """The kernel killed a process of the service since a moment before, or right now."""
        kills = self._group.kills()
        return kills > self._seen or kills > self._reported or time.monotonic() - self._killed_at < 2 * _POLL

    async def report(self, exit_status: int | None = None) -> None:
        """Tell of kills that nobody has told of, with what was committed when little was left.

        What was taken before may be hours away from the kill. One is seen twice, by the count and as the end of the service.
        """
        kills = self._group.kills()
        if kills <= self._reported:
            return
        since, self._reported = kills - self._reported, kills
        sighting = memory_sighting(since, time.time_ns(), exit_status)
        killed = time.monotonic()
        await asyncio.sleep(_SETTLE)
        at, taken = None, None
        if self._pressed is not None and killed - self._pressed_at < _PRESSED_COUNTS:
            at, taken = await self._pressed.keeping, self._pressed.taken
        seen = await self._failures.with_requests(sighting, taken, killed - _POLL)
        while seen.request is None and time.monotonic() - killed < _SETTLE_MOST:
            await asyncio.sleep(_SETTLE)
            seen = await self._failures.with_requests(sighting, taken, killed - _POLL)
        await self._failures.report(seen, at, at)

    async def _commit_before_it_ends(self) -> _PressedCommit | None:
        if not self._limit.allows(_LITTLE):
            return None
        try:
            taken = await self._committer.capture(Trigger.INCIDENT)
        except ReliveError as error:
            self._log.error("commit before memory ran out failed", error=error.as_json())
            return None
        self._log.info("little memory is left", commit=taken.name)
        return _PressedCommit(taken, asyncio.create_task(self._failures.store_capture(taken)))

"""Commits that nobody asked for: when a service is ready, and again and again.

No error ends them. After one the next is tried soon, then less and less often: a commit costs the service a pause also when it
fails.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import structlog

from relive.agent.commits.activity import Activity
from relive.agent.commits.committer import Committer
from relive.agent.commits.pace import CommitPace
from relive.kernel.atomic_write import Durability, replace_file
from relive.model.capsule import Policy
from relive.model.commit import Trigger
from relive.model.pace import PaceState
from relive.store import StoredCommit

__all__ = ["PolicyCommits"]

_READY_POLL = 0.05  # [s]
_READY_WITHOUT_PORT = 1.0  # [s] a service whose port is not known counts as ready when it has run this long
_READY_LIMIT = 60.0  # [s]
_HELD_LOOK = 1.0  # [s] between two looks whether the next pause would be short enough
_START_RETRY_MOST = 600.0  # [s] between two tries of the only commit that the policy asks for


class PolicyCommits:
    """Of one start of a service.

    Args:
        pace: says when the clock may commit; where it is written down for others.
        listens: tells whether the service listens by now; None: it is not known to, and counts as ready after a while.
        activity: of the service; asked where commits follow changes.
    """

    def __init__(
        self,
        policy: Policy,
        committer: Committer,
        pace: CommitPace,
        written: Path,
        listens: Callable[[], bool] | None,
        activity: Callable[[], Activity],
    ) -> None:
        self._policy = policy
        self._pace, self._written = pace, written
        self._last_state: PaceState | None = None
        self._committer = committer
        self._listens = listens
        self._begin_activity = activity
        self._activity: Activity | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Commit until it is cancelled."""
        self._committer.is_ready(False)
        await self._wait_until_ready()
        if not self._policy.at_start:
            self._committer.is_ready(True)
            return
        if self._policy.on_change:
            self._activity = await asyncio.to_thread(self._begin_activity)
        trigger, interval = Trigger.START, self._policy.seconds
        while True:
            pause = interval
            if self._publish_state().is_held:
                pause = max(interval, _HELD_LOOK) if interval is not None else None
            else:
                try:
                    stored = await self._commit(trigger)
                except Exception as error:
                    pause = self._committer.failed(error, interval or _START_RETRY_MOST)
                else:
                    trigger = Trigger.TIMER
                    self._log.info(
                        "durable", commit=stored.id, durable_us=stored.durable_us, bytes=stored.new_bytes
                    )
                self._publish_state()
            self._committer.is_ready(True)
            if pause is None:
                return
            await asyncio.sleep(pause)
            while left := self._pace.wait_left():  # another commit may be taken meanwhile
                await asyncio.sleep(left)
            await self._wait_for_change(pause)

    async def _commit(self, trigger: Trigger) -> StoredCommit:
        taken = await self._committer.capture(trigger)
        if self._activity is not None:
            await asyncio.to_thread(self._activity.committed)
        return await self._committer.store(taken)

    async def _wait_for_change(self, look: float) -> None:
        """Where commits follow changes, until there is one; ``look``: seconds between two looks."""
        while self._activity is not None and not await asyncio.to_thread(self._activity.has_changed, look):
            await asyncio.sleep(look)

    def _publish_state(self) -> PaceState:
        state = self._pace.state()
        if self._last_state is None or state.is_held != self._last_state.is_held:
            self._log.info("pace", **state.model_dump())
        if state != self._last_state:
            self._last_state = state
            with contextlib.suppress(OSError):  # a full disk; the commit itself says so
                replace_file(self._written, state.model_dump_json().encode(), durability=Durability.NONE)
        return state

    async def _wait_until_ready(self) -> None:
        """Wait for the service to listen, and for the recording, without which a commit has no cursor."""
        if self._listens is None:
            await asyncio.sleep(_READY_WITHOUT_PORT)
            return
        for _ in range(int(_READY_LIMIT / _READY_POLL)):
            proxy = self._committer.proxy
            if self._listens() and (proxy is None or proxy.link is not None):
                return
            await asyncio.sleep(_READY_POLL)

"""Commits that nobody asked for: when a service is ready, and again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from relive.agent.committer import Committer
from relive.errors import ReliveError
from relive.model.capsule import Policy
from relive.model.commit import Trigger

__all__ = ["PolicyCommits"]

_READY_POLL = 0.05  # [s]
_READY_WITHOUT_PORT = 1.0  # [s] a service whose port is not known counts as ready when it has run this long
_READY_LIMIT = 60.0  # [s]


class PolicyCommits:
    """Of one start of a service.

    Args:
        listens: tells whether the service listens by now; None: it is not known to, and counts as ready after a while.
    """

    def __init__(self, policy: Policy, committer: Committer, listens: Callable[[], bool] | None) -> None:
        self._policy = policy
        self._committer = committer
        self._listens = listens
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Commit until it is cancelled."""
        if not self._policy.at_start:
            return
        await self._wait_until_ready()
        await self._commit_or_log(Trigger.START)
        while self._policy.seconds is not None:
            await asyncio.sleep(self._policy.seconds)
            await self._commit_or_log(Trigger.TIMER)

    async def _commit_or_log(self, trigger: Trigger) -> None:
        try:
            stored = await self._committer.commit(trigger)
        except ReliveError as error:
            self._log.error("commit failed", error=error.as_json())
        else:
            self._log.info("durable", commit=stored.id, durable_us=stored.durable_us, bytes=stored.new_bytes)

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

"""Commits that nobody asked for: when a service is ready, and again and again.

No error ends them. After one the next is tried soon, then less and less often: a commit costs the service a pause also when it
fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import structlog

from relive.agent.commits.changes import Changes
from relive.agent.commits.committer import Committer
from relive.agent.commits.dumper import DumpedCommit
from relive.agent.commits.pace import CommitPace
from relive.kernel.atomic_write import Durability, replace_file
from relive.model.commit import Trigger
from relive.model.commit_policy import Policy
from relive.model.pace import PaceState

__all__ = ["PolicyCommits"]

_READY_POLL = 0.05  # [s]
_READY_WITHOUT_PORT = 1.0  # [s] a service whose port is not known counts as ready when it has run this long
_READY_LIMIT = 60.0  # [s]
_HELD_LOOK = 1.0  # [s] between two looks whether the next pause would be short enough
_WRITE_EVERY = 0.5  # [s] the state of a quick clock is written down for others
_WORD_EVERY = 60.0  # [s] the log says what was left out, and why
_START_RETRY_MOST = 600.0  # [s] between two tries of the only commit that the policy asks for


class PolicyCommits:
    """Of one start of a service.

    Args:
        pace: says when the clock may commit; where it is written down for others.
        listens: tells whether the service listens by now; None: it is not known to, and counts as ready after a while.
        changes: begins to look for what commits follow, where they do: what the service does, or its code.
        clock: monotonic [s].
    """

    def __init__(
        self,
        policy: Policy,
        committer: Committer,
        pace: CommitPace,
        written: Path,
        listens: Callable[[], bool] | None,
        changes: Callable[[], Changes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._pace, self._written = pace, written
        self._last_state: PaceState | None = None
        self._committer = committer
        self._listens = listens
        self._begin_changes = changes
        self._changes: Changes | None = None
        self._storing: deque[asyncio.Task[None]] = deque()  # the clock's commits, the oldest first
        self._clock = clock
        self._next_word = self._next_written = 0.0
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Commit until it is cancelled."""
        self._committer.is_ready(False)
        await self._wait_until_ready()
        if not self._policy.at_start:
            self._committer.is_ready(True)
            return
        if self._policy.on_change or self._policy.on_deploy:
            self._changes = await asyncio.to_thread(self._begin_changes)
        trigger, interval = Trigger.START, self._policy.seconds
        while True:
            pause, is_held, is_missing = interval, self._publish_state(), False
            try:
                await (self._settle() if is_held else self._commit(trigger))
            except Exception as error:
                pause, is_missing = self._committer.failed(error, interval or _START_RETRY_MOST), True
            else:
                if is_held:
                    pause = max(interval, _HELD_LOOK) if interval is not None else None
                else:
                    trigger = Trigger.DEPLOY if self._policy.on_deploy else Trigger.TIMER
                    pause = interval if self._changes is not None or interval is None else 0.0
            self._publish_state()
            self._committer.is_ready(True)
            if pause is None:
                return
            if pause:
                await asyncio.sleep(pause)
            while left := self._pace.wait_left():  # another commit may be taken meanwhile
                await asyncio.sleep(left)
            if not is_missing:  # what follows no change is in no commit as yet
                await self._wait_for_change(pause)

    async def _commit(self, trigger: Trigger) -> None:
        """The next is begun when this one is durable: nothing piles up, and the two do not contend for the processor.

        With a clock that is quicker than the store it is begun when this one is taken, where a processor is free; what gathers
        meanwhile is stored together. Where none is, and with a budget, it is begun when this one is written, and only the disk is
        waited for. Of one that was not stored after all a later call tells, or ``_settle``.
        """
        is_quick = self._pace.is_quicker_than_the_store
        begun = self._pace.begin()
        taken = await self._committer.capture(trigger)
        if self._changes is not None:
            await asyncio.to_thread(self._changes.committed)
        written = asyncio.Event()
        self._storing.append(asyncio.create_task(self._store(taken, begun, written)))
        if is_quick:
            if self._committer.is_contended or self._pace.counts_each:
                await written.wait()
            self._pace.done()
        await self._settle(is_all=not is_quick)

    async def _settle(self, *, is_all: bool = True) -> None:
        """Wait until the clock's commits are durable, or look which are by now.

        Raises what kept one from that, and nothing of the others: what is stored together fails together.
        """
        failure: Exception | None = None
        while self._storing and (is_all or self._storing[0].done()):
            try:
                await self._storing.popleft()
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _store(self, taken: DumpedCommit, begun: float, written: asyncio.Event) -> None:
        try:
            await self._committer.store(taken, written.set)
        finally:
            written.set()  # also of one that failed
        self._pace.durable(begun)

    async def _wait_for_change(self, look: float) -> None:
        """Where commits follow changes, until there is one, or what was in one could not be stored.

        Args:
            look: seconds between two looks.
        """
        while self._changes is not None and not await asyncio.to_thread(self._changes.has_changed, look):
            if self._has_lost_one():
                return
            await asyncio.sleep(look)

    def _has_lost_one(self) -> bool:
        """One of the clock's commits could not be stored, which ``_settle`` tells."""
        while self._storing and self._storing[0].done():
            if self._storing[0].exception() is not None:
                return True
            self._storing.popleft()
        return False

    def _publish_state(self) -> bool:
        """Write down and say what is new, where that is due; returns whether the next pause holds the clock back."""
        before, now, is_held = self._last_state, self._clock(), self._pace.is_held
        turns = before is None or is_held != before.is_held
        actual = self._pace.actual
        is_quick = actual is not None and actual < _WRITE_EVERY  # another one follows soon
        if is_quick and not turns and now < min(self._next_written, self._next_word):
            return is_held
        state = self._pace.state()
        is_news = before is None or (state.slowed_by, state.left_out) != (before.slowed_by, before.left_out)
        if turns or (is_news and now >= self._next_word):
            self._next_word = now + _WORD_EVERY
            self._log.info("pace", **state.model_dump(mode="json"))
        if state != before and (turns or not is_quick or now >= self._next_written):
            self._next_written = now + _WRITE_EVERY
            self._last_state = state
            with contextlib.suppress(OSError):  # a full disk; the commit itself says so
                replace_file(self._written, state.model_dump_json().encode(), durability=Durability.NONE)
        return is_held

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

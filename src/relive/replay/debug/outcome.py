"""What came of a request that was looked at in a debugger, once that let it go on: its answer, beside the recorded one.

The debugger holds the request up for as long as it is looked at, so it is sent, or its answer awaited, in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from relive.model.commit import Manifest
from relive.model.outcome import End, Outcome, Verdict
from relive.model.value import Value
from relive.replay.debug.watching import BranchWatch
from relive.replay.outcomes import read_log, replayed_answer
from relive.replay.plan import Pace, ReplayPlan
from relive.replay.received import ReceivedAnswer
from relive.replay.sender import Sender, service_address
from relive.replay.stubs.lifecycle import StubLifecycle
from relive.replay.usual_log import NOTHING_USUAL, UsualLog
from relive.replay.verdict import compare
from relive.sandbox.branch import Branch

__all__ = ["DebugOutcome", "Sending"]

_UNLIMITED = 86_400.0  # [s] a request may be looked at for a day


class DebugOutcome(Value):
    """The end of the request in the branch, and how it compares with the recorded one."""

    recorded: Outcome
    came: Outcome
    verdict: Verdict


@dataclass(slots=True)
class Sending:
    """Carries a plan out in a branch, in a thread of its own.

    Args:
        recorded: how the judged request had ended.
        on_subject: called just before it is sent.
        stage: stubs of the branch, closed at the end; None: there are none.
        watch: what the branch lacked.
        usual: what the service writes to its log where nothing fails.
    """

    branch: Branch
    manifest: Manifest
    plan: ReplayPlan
    recorded: Outcome
    watch: BranchWatch
    on_subject: Callable[[], None] = lambda: None
    stage: StubLifecycle | None = None
    usual: UsualLog = NOTHING_USUAL
    _answer: ReceivedAnswer | None = None
    _log_from: int = 0
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Something is still to be sent, or answered."""
        return self._thread.is_alive()

    def outcome(self, limit: float) -> DebugOutcome | None:
        """Wait so many seconds for the end of the request; None where it did not end, or was never sent."""
        self._thread.join(limit)
        if self._thread.is_alive() or self._answer is None or self._answer.end is End.NO_ANSWER:
            return None
        answer = replayed_answer(self._answer, read_log(self.branch.log("stderr"), self._log_from))
        came, played = self.watch.complete_outcome(answer, self.stage)
        verdict = compare(self.recorded, came, usual=self.usual)
        update = {"played": played, "inside": [*verdict.inside, *self.watch.troubles()]}
        return DebugOutcome(recorded=self.recorded, came=came, verdict=verdict.model_copy(update=update))

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the branch was stopped meanwhile
            asyncio.run(self._carry_out())

    async def _carry_out(self) -> None:
        peers, self.branch.peers = self.branch.peers, {}
        cursor = self.manifest.cursor.sequence if self.manifest.cursor is not None else 0
        sender = Sender(
            self.branch.facts.init,
            service_address(self.manifest),
            peers,
            pace=Pace.FAST,
            limit=_UNLIMITED,
            cursor=cursor,
            root=self.branch.facts.root,
        )
        if self.stage is not None:
            self.stage.open(self.branch, self.manifest)
        try:
            await sender.carry_out(self.plan, asyncio.Event(), self._before_subject)
        finally:
            self._answer = sender.answers.get(self.plan.subject or 0)
            sender.close()
            if self.stage is not None:
                await self.stage.close()

    def _before_subject(self) -> None:
        self._log_from = self.branch.log("stderr").stat().st_size
        self.on_subject()

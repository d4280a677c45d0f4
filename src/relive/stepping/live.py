"""A branch in which a debugger follows the request that failed: it stops in a line, is asked, and goes on.

The other end is ``_Session`` of ``relive_stepper``: lines of JSON over two pipes of the process. One thread uses it.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from relive.config import Settings
from relive.errors import DebuggerSilent, PlaceUnfit
from relive.model.value import Value
from relive.replay.debug.outcome import DebugOutcome
from relive.replay.debug.session import restore_for, send_in
from relive.replay.debug.steering import hold_parents, leave_to, stands_alone
from relive.replay.debug.watching import BranchWatch
from relive.replay.plan import ReplayPlan
from relive.replay.replay_input import ReplayInput
from relive.replay.replay_options import ReplayOptions, answers_for
from relive.stepping.following import follow, refused
from relive.store import Store

__all__ = ["Breakpoint", "LiveRequest", "Stop", "StopTarget"]

V = TypeVar("V", bound=Value)
_ANSWERS = 10.0  # [s] for a question, in which an expression may run
_OUTCOME = 5.0  # [s] for what follows a request's end
_LOOK = 0.1  # [s] between two looks whether the request has ended
_ANSWER_MOST = 16 << 20  # [bytes]; what runs in a branch may be hostile, and this is memory of the host's
_READ = 1 << 16


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """``file`` as the end of its path; ``when``: only where this is true, or cannot be evaluated."""

    file: str
    line: int
    when: str | None = None


@dataclass(frozen=True, slots=True)
class StopTarget:
    """How far to run: ``how`` is position, step, next, out, continue or end; ``scan``: note the last stop of "continue" before."""

    how: str
    position: int = 0
    scan: bool = False


class Stop(Value):
    """Where the request stands, before that line runs.

    Attributes:
        stopped: "position", "step", "breakpoint" or "watch".
        sum: of all lines up to it: the same in each replay that went the same way.
        source: the line's text, as it is in the file now.
        last_hit: of a target with ``scan``.
    """

    stopped: str
    position: int
    sum: int
    file: str
    line: int
    function: str
    source: str
    last_hit: int | None = None


class LiveRequest:
    """One branch, from its restore on. ``close`` it.

    Raises:
        PlaceUnfit, RestoreFailed: as ``follow``; the branch is gone then.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        case: ReplayInput,
        target: StopTarget,
        breakpoints: Sequence[Breakpoint],
        watches: Sequence[str],
    ) -> None:
        self._rest = b""
        self._held = ExitStack()
        try:
            is_answered = answers_for(case, ReplayOptions()) is not None
            watch = self._held.enter_context(closing(BranchWatch(outlived=False, is_answered=is_answered)))
            self.branch, stage = restore_for(settings, store, case, watch)
            self._held.callback(self.branch.stop)
            pid, number = case.inside if case.inside is not None else (0, 0)
            asked = {"pid": pid, "request": number, **_target_fields(target, breakpoints, watches)}
            self.following = self._held.enter_context(
                closing(follow(self.branch, [], None, 0, asked, only=pid))
            )
            self._sending = send_in(self.branch, case, watch, stage, lambda: self._steer(case.plan, pid))
            self._asked = self.following.processes[0].commands
        except BaseException:
            self._held.close()
            raise

    def _steer(self, plan: ReplayPlan, pid: int) -> None:
        """Have the worker of the recording get the request, and nobody end it while it stands."""
        if pid and stands_alone(plan):
            leave_to(self.branch.facts.root, pid)
        elif pid:
            hold_parents(self.branch.facts.root, pid)

    def close(self) -> None:
        """End the branch. May be called again."""
        self._held.close()

    def is_elsewhere(self) -> bool:
        """No line ran for the request where it ran in the recording: of several workers another one may have got it."""
        several = len(self.following.processes) + self.following.left_out > 1
        return several and self.following.came_to() == (0, 0)

    def wait(self, limit: float) -> Stop | None:
        """Until it stops; None: the request has ended.

        Raises:
            DebuggerSilent: neither came within so many seconds, or what came cannot be understood.
        """
        until = time.monotonic() + limit
        while time.monotonic() < until:
            is_over = not self._sending.is_alive() or not self.branch.is_alive
            answer = self._line(_LOOK if not is_over else 0.0)
            if answer is not None:
                return _understood(answer, Stop)
            if is_over:
                return None
        raise DebuggerSilent(
            f"the request came to no stop within {limit:g} s",
            cause="it waits for something, or an expression of a breakpoint does not end",
            remedy="give it more time (--limit)",
        )

    def go(self, target: StopTarget, breakpoints: Sequence[Breakpoint], watches: Sequence[str]) -> None:
        """Run on from a stop; ``wait`` for the next."""
        self._say({"do": "go", **_target_fields(target, breakpoints, watches)})

    def ask(self, what: str, kind: type[V], **more: Any) -> V:
        """A question at a stop: stack, source, locals, evaluate, find; ``kind``: of the answer.

        Raises:
            PlaceUnfit: what is asked for is not there. DebuggerSilent: no answer came; the branch is of no use any more.
        """
        self._say({"do": what, **more})
        until = time.monotonic() + _ANSWERS
        while time.monotonic() < until:
            answer = self._line(until - time.monotonic())
            if answer is not None:
                return _understood(answer, kind)
            if not self.branch.is_alive:
                break
        raise DebuggerSilent(
            "the debugger gave no answer",
            cause=f"the expression did not end within {_ANSWERS:g} s, or its process died",
            remedy="ask for something else; the branch is restored anew",
        )

    def outcome(self) -> DebugOutcome | None:
        """How the request ended, beside the recorded end; None where that cannot be told. Ask once, after ``wait`` gave None."""
        return self._sending.outcome(_OUTCOME)

    def _say(self, command: Mapping[str, Any]) -> None:
        data = json.dumps(command).encode() + b"\n"
        try:
            while data:
                if not select.select([], [self._asked], [], _ANSWERS)[1]:
                    raise BlockingIOError
                data = data[os.write(self._asked, data) :]
        except OSError as error:
            raise DebuggerSilent("the debugger does not listen", cause="its process has ended") from error

    def _line(self, limit: float) -> dict[str, Any] | None:
        """What a process says next, within so many seconds; it is the one that is asked from then on."""
        until = time.monotonic() + limit
        by_replies = {one.replies: one for one in self.following.processes}
        while b"\n" not in self._rest:
            ready = select.select(list(by_replies), [], [], max(0.0, until - time.monotonic()))[0]
            if not ready:
                return None
            data = os.read(ready[0], _READ)
            if not data:  # the process has ended
                time.sleep(min(_LOOK, max(0.0, until - time.monotonic())))
                return None
            self._asked = by_replies[ready[0]].commands
            self._rest += data
            if len(self._rest) > _ANSWER_MOST:
                raise _not_understood()
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _not_understood() from error
        if not isinstance(answer, dict):
            raise _not_understood()
        return answer


def _target_fields(
    target: StopTarget, breakpoints: Sequence[Breakpoint], watches: Sequence[str]
) -> dict[str, Any]:
    return {
        "target": {"how": target.how, "position": target.position, "scan": target.scan},
        "breakpoints": [{"file": one.file, "line": one.line, "when": one.when} for one in breakpoints],
        "watches": list(watches),
    }


def _understood(answer: dict[str, Any], kind: type[V]) -> V:
    if "refused" in answer:
        raise refused(answer["refused"])
    if "failed" in answer:
        raise PlaceUnfit("the debugger cannot answer that", cause=str(answer["failed"]))
    try:
        return kind.model_validate(answer)
    except ValidationError as error:
        raise _not_understood() from error


def _not_understood() -> DebuggerSilent:
    return DebuggerSilent(
        "what the debugger in the branch said cannot be understood",
        cause="something else than it wrote there",
        remedy="begin again",
    )

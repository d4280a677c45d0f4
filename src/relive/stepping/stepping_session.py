"""The request that failed as a line of positions to go forward and back on.

Back means again: a fresh branch from the commit before the request, replayed up to the wanted position. The lines on the way are
summed up (``Stop.sum``): where a replay went another way than the one before it, that is told, and no place is shown for another.

With ``is_ahead`` a second branch, a live checkpoint, is brought to where a step back would lead while nobody waits: then such a
step is a change of branches. It is used up by that, and the next one is made. More than these two never live, but for one that is
just being ended: taking a branch down costs as much as bringing one up, and nobody has to wait for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from relive.errors import DebuggerSilent, ReliveError, ReplayDiverged, UsageError
from relive.incidents.report.masking import Mask
from relive.inspection.masking import masked_text
from relive.model.value import Value
from relive.replay.debug.outcome import DebugOutcome
from relive.stepping.live import Breakpoint, LiveRequest, Stop, StopTarget

__all__ = ["StackFrame", "SteppingSession", "Variable"]

V = TypeVar("V", bound=Value)
_FRAMES, _LOCALS = 200, 500
_THREADS = 2  # one makes a checkpoint, one ends a branch
_TRIES = 20  # replays for the worker of the recording to get the request: of four workers it does but for 3 in 1000 times


class StackFrame(Value):
    """``own``: of the service's own code."""

    file: str
    line: int
    function: str
    own: bool


class _Stack(Value):
    frames: list[StackFrame]


class _Source(Value):
    first: int
    line: int
    lines: list[str]


class _Children(Value):
    values: list[tuple[str, str, str, str | None, bool]]
    module: str


class _Evaluated(Value):
    type: str
    text: str
    raised: bool
    holds: bool


class _Checked(Value):
    pass


class _Place(Value):
    file: str
    line: int


class _Found(Value):
    """A position before, with its sum; None: there is none."""

    position: int | None
    sum: int | None


@dataclass(frozen=True, slots=True)
class Variable:
    """A value in words.

    Attributes:
        text: its representation; of an expression that raised, what.
        expression: gives it in its frame; None: none is known. holds: it can be looked into.
    """

    name: str
    type: str
    text: str
    raised: bool = False
    expression: str | None = None
    holds: bool = False


@dataclass(slots=True)
class SteppingSession:
    """A debugger's session. ``close`` it.

    Args:
        restored: a branch that runs to a target.
        limit: seconds for the request to come to a stop.
        is_ahead: keep a live checkpoint.
        mask: of what the service's memory and source say; its owner has it learn the secrets that are known elsewhere.

    Attributes:
        breakpoints, watches: what stops ``forward`` and ``back("continue")``; watched as by `relive who-wrote`.
        stop: where it stands; None: the request has ended.
        last, raised: the positions of the request's last line, and of the one that raised last (0: none), once it has ended.
        bookmarks: positions by name.
    """

    restored: Callable[[StopTarget, list[Breakpoint], list[str]], LiveRequest]
    limit: float = 60.0
    is_ahead: bool = False
    mask: Mask = field(default_factory=Mask)
    breakpoints: list[Breakpoint] = field(default_factory=list)
    watches: list[str] = field(default_factory=list)
    bookmarks: dict[str, int] = field(default_factory=dict)
    stop: Stop | None = None
    last: int = 0
    raised: int = 0
    _live: LiveRequest | None = None
    _sums: dict[int, int] = field(default_factory=dict)
    _spare: _Spare | None = None
    _behind: ThreadPoolExecutor | None = None  # makes checkpoints and ends branches while nobody waits
    _ending: Future[None] | None = None

    # -- going -----------------------------------------------------------------------------------------------------

    def go_to(self, position: int) -> Stop | None:
        """Stand at a position; None: the request ended before it came there, and nobody had been there before.

        Raises:
            ReplayDiverged: this replay went another way. DebuggerSilent, RestoreFailed, PlaceUnfit.
        """
        if self.stop is not None and self.stop.position == position:
            return self.stop
        if self._live is not None and self.stop is not None and self.stop.position < position:
            self._live.go(StopTarget("position", position), self.breakpoints, self.watches)
        elif self._switch_to_spare(position):
            if self.stop is not None and self.stop.position == position:
                return self._checked(self.stop)
            assert self._live is not None
            self._live.go(StopTarget("position", position), self.breakpoints, self.watches)
        else:
            return self._arrive(position, self._restore(StopTarget("position", position)))
        return self._arrive(position, self._live.wait(self.limit))

    def go_to_failure(self) -> Stop | None:
        """Stand at the line that raised what was raised last, or, where nothing was, at the request's last line."""
        if not self.last:
            self._arrive(None, self._restore(StopTarget("end")))
        return self.go_to(self.raised or self.last) if self.last else None

    def forward(self, how: str) -> Stop | None:
        """``how``: step, next, out, continue. None: the request has ended."""
        if self._live is None or self.stop is None:
            return None
        self._live.go(StopTarget(how), self.breakpoints, self.watches)
        return self._arrive(None, self._live.wait(self.limit))

    def back(self, how: str) -> Stop | None:
        """``how`` as for ``forward``; None: there is nothing before it to stop at, and it stands where it stood."""
        if self.stop is None:
            if not self.last:
                return None
            self.go_to(self.last)
            if how in ("step", "next"):
                return self.stop
        if how == "continue" and (self.watches or any(one.when for one in self.breakpoints)):
            return self._back_by_scan()
        found = self._find(how, [(one.file, one.line) for one in self.breakpoints])
        if found.position is None or found.sum is None:
            return None
        self._sums[found.position] = found.sum
        return self.go_to(found.position)

    def _find(self, how: str, breakpoints: list[tuple[str, int]]) -> _Found:
        return self._ask("find", _Found, how=how, breakpoints=breakpoints)

    def _back_by_scan(self) -> Stop | None:
        """To the last stop before here: it is looked for on the way to where it stands, then gone to."""
        assert self.stop is not None
        here = self.stop.position
        if here <= 1:
            return None
        stop = self._arrive(here, self._restore(StopTarget("position", here, scan=True)))
        if stop is None or stop.last_hit is None:
            return None
        return self.go_to(stop.last_hit)

    # -- branches --------------------------------------------------------------------------------------------------

    def _restore(self, target: StopTarget) -> Stop | None:
        self._let_go()
        self._live, stop = self._begun(target, self.breakpoints, self.watches)
        return stop

    def _begun(
        self, target: StopTarget, breakpoints: list[Breakpoint], watches: list[str]
    ) -> tuple[LiveRequest, Stop | None]:
        """A branch that has come to a target, in the worker that had the request; the kernel may choose another, then again."""
        for _ in range(_TRIES):
            live = self.restored(target, breakpoints, watches)
            try:
                stop = live.wait(self.limit)
                if stop is not None or not live.is_elsewhere():
                    return live, stop
            except BaseException:
                live.close()
                raise
            live.close()
        raise ReplayDiverged(
            "no line of the service's own code ran for the request in the worker that had it",
            cause=f"in each of {_TRIES} replays another worker got it, or it comes to no such line",
            remedy="begin again; `relive logpoint` follows all workers",
        )

    def _arrive(self, wanted: int | None, stop: Stop | None) -> Stop | None:
        """Stand at a stop of the branch; ``wanted``: the position that it has to be at."""
        assert self._live is not None
        self.stop = stop = self._masked(stop) if stop is not None else None
        if stop is None:
            self.last, self.raised = self._live.following.came_to()
            if wanted is not None and wanted in self._sums:
                raise _diverged(wanted, f"it ended after position {self.last}")
            return None
        return self._checked(stop)

    def _masked(self, stop: Stop) -> Stop:
        return stop.model_copy(update={"source": self.mask.sentence(stop.source)})

    def _checked(self, stop: Stop) -> Stop:
        known = self._sums.setdefault(stop.position, stop.sum)
        if known != stop.sum:
            self._let_go()
            raise _diverged(stop.position, f"other lines ran on the way to {stop.file}:{stop.line}")
        self._make_spare()
        return stop

    def _switch_to_spare(self, position: int) -> bool:
        """Make the checkpoint the branch that is looked at, if it stands there or before."""
        spare = self._spare
        if spare is None or spare.position > position:
            return False
        self._spare = None
        try:
            live, stop = spare.made.result()
        except ReliveError:  # what is done without it says so
            return False
        self._let_go()
        self._live, self.stop = live, self._masked(stop)
        return True

    def _make_spare(self) -> None:
        """Begin to bring a branch to where the nearest steps back lead, if none is there already."""
        if not self.is_ahead:
            return
        found = [self._find(how, []).position for how in ("step", "next")]
        places = [one for one in found if one is not None]
        if not places or (self._spare is not None and self._spare.position <= min(places)):
            return
        self._drop_spare()
        self._spare = _Spare(min(places), self._threads().submit(self._made, min(places)))

    def _made(self, position: int) -> tuple[LiveRequest, Stop]:
        live, stop = self._begun(StopTarget("position", position), [], [])
        if stop is None:
            live.close()
            raise _diverged(position, "the request ended before it")
        return live, stop

    def _drop_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None and not spare.made.cancel():
            with contextlib.suppress(ReliveError):
                spare.made.result()[0].close()

    def _let_go(self) -> None:
        """End the branch that is looked at, while nobody waits; the one before it has ended then, so only one is ending ever."""
        live, self._live, self.stop = self._live, None, None
        if live is not None:
            self._await_end()
            self._ending = self._threads().submit(live.close)

    def _await_end(self) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            ending.result()

    def _threads(self) -> ThreadPoolExecutor:
        if self._behind is None:
            self._behind = ThreadPoolExecutor(_THREADS, thread_name_prefix="checkpoint")
        return self._behind

    # -- looking ---------------------------------------------------------------------------------------------------

    def stack(self) -> list[StackFrame]:
        """Innermost first; empty where it does not stand."""
        if self.stop is None:
            return []
        return self._ask("stack", _Stack, most=_FRAMES).frames

    def source(self, frame: int = 0, around: int = 5) -> tuple[int, int, list[str]]:
        """(number of the first line, of the frame's line, lines)."""
        answer = self._ask("source", _Source, frame=frame, around=around)
        return answer.first, answer.line, [self.mask.sentence(one) for one in answer.lines]

    def variables(self, frame: int = 0) -> list[Variable]:
        """The locals of a frame, counted from the innermost one."""
        if self.stop is None:
            return []
        return self._children(frame, scope="locals")[1]

    def global_variables(self, frame: int = 0) -> tuple[str, list[Variable]]:
        """(the frame's module, its names, without modules and those that begin with two underscores)."""
        return self._children(frame, scope="globals")

    def held_by(self, expression: str, frame: int = 0) -> list[Variable]:
        """What the value of an expression holds: items, elements, attributes. Raises as ``evaluate``."""
        return self._children(frame, expression=expression)[1]

    def _children(
        self, frame: int, scope: str | None = None, expression: str = ""
    ) -> tuple[str, list[Variable]]:
        answer = self._ask(
            "children", _Children, frame=frame, scope=scope, expression=expression, most=_LOCALS
        )
        return answer.module, [
            Variable(name, kind, self._masked_child(expression, name, text), expression=found, holds=more)
            for name, kind, text, found, more in answer.values
        ]

    def _masked_child(self, expression: str, name: str, text: str) -> str:
        """By its own name, and by that of what holds it."""
        return masked_text(self.mask, expression, masked_text(self.mask, name, text))

    def evaluate(self, expression: str, frame: int = 0) -> Variable:
        """Raises PlaceUnfit for what is no expression; else as ``go_to``, where its end was not awaited."""
        answer = self._ask("evaluate", _Evaluated, frame=frame, expression=expression)
        text = masked_text(self.mask, expression, answer.text)
        return Variable(expression, answer.type, text, answer.raised, expression, answer.holds)

    def check(self, expression: str, *, is_watched: bool) -> None:
        """Raises PlaceUnfit for a watch, or a condition, that none can be made of; nothing where no line is stood in to ask."""
        if self.stop is not None:
            self._ask("check", _Checked, expression=expression, is_watched=is_watched)

    def check_place(self, file: str, line: int) -> None:
        """Raises PlaceUnfit where no function has code there; nothing where no line is stood in to ask."""
        if self.stop is not None:
            self._ask("place", _Place, file=file, line=line)

    def outcome(self) -> DebugOutcome | None:
        """How the request ended, once, when it has."""
        return self._live.outcome() if self._live is not None and self.stop is None else None

    @property
    def branch(self) -> str:
        """The id of the one that is alive; empty where none is."""
        return self._live.branch.facts.id if self._live is not None else ""

    def _ask(self, what: str, kind: type[V], **more: Any) -> V:
        here = self.stop
        if self._live is None or here is None:
            raise UsageError(
                "the request stands in no line", cause="it has ended", remedy="go back, or to a position"
            )
        try:
            return self._live.ask(what, kind, **more)
        except DebuggerSilent:
            self.stop = None
            self.go_to(here.position)  # in a fresh branch
            raise

    def close(self) -> None:
        """End the branches. May be called again."""
        self._let_go()
        self._drop_spare()
        if self._behind is not None:
            self._behind.shutdown()
            self._behind = None
        self._await_end()


@dataclass(frozen=True, slots=True)
class _Spare:
    """A branch that stands, or will, at a position."""

    position: int
    made: Future[tuple[LiveRequest, Stop]]


def _diverged(position: int, cause: str) -> ReplayDiverged:
    return ReplayDiverged(
        f"the replay went another way before it came to position {position}",
        cause=cause,
        remedy="go there again, or begin again; docs/limits.md says what is not steered",
    )

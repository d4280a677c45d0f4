"""Having a Node.js process of a throw-away branch tell its stack, its heap, what it waits for, its modules' values; evaluating.

Its worker threads are told, too: each has a heap, an event loop and modules of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relive.errors import RestoreFailed
from relive.incidents.report.masking import Mask
from relive.inspection.branches import Questioned
from relive.inspection.evaluated import OF_THE_SERVICE, EvalOutcome, Evaluated, death_told
from relive.inspection.masking import masked_names, masked_parts, masked_text
from relive.inspection.node.inspector import Inspector, InspectorGone, InspectorLate, opened_inspector
from relive.inspection.node.looking import Looker, is_own, path_of
from relive.inspection.node.values import NodeFrame, NodeHandle, NodeHeap, NodeState, NodeWorker
from relive.inspection.node.workers import Worker, workers_of
from relive.kernel import procfs

__all__ = ["AskedNode"]

_MOST_FRAMES = 100
_LOCAL = frozenset({"local", "block", "catch", "closure", "with"})


@dataclass(frozen=True, slots=True)
class AskedNode:
    """A process of Node.js in a branch, to be asked once; ``process``: its number inside, also once it has ended."""

    asked: Questioned
    pid: int
    mask: Mask
    process: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "process", procfs.innermost_pid(self.pid) or 0)

    def state(self, limit: float) -> NodeState:
        """All that is told of it; raises RestoreFailed where it does not answer, and UsageError where it opens no inspector."""
        ran_ms = self.asked.ran_ms()
        try:
            with opened_inspector(self.pid, time.monotonic() + limit) as inspector:
                return self._state(inspector, ran_ms)
        except InspectorLate as error:
            raise RestoreFailed(
                f"process {self.process} of the branch did not answer within {limit:g} s",
                cause="its main thread is in native code or waits for something without its event loop",
                remedy="`relive inspect REF` tells in which system calls its threads are",
            ) from error
        except InspectorGone as error:
            raise RestoreFailed(
                f"process {self.process} of the branch ended when it was asked",
                cause="it was committed right before its end, or what it does next ends it",
                remedy="ask an earlier commit (`relive log`)",
            ) from error

    def evaluate(
        self, expression: str, *, module: str | None, depth: int, most: int, limit: float
    ) -> Evaluated:
        """The value of an expression, or what else came of it; arguments as of ``AskedBranch.evaluate``.

        A ``module`` may also be a part of a worker thread's title, as ``worker 1``: then it is evaluated there.

        Raises:
            UsageError: there is no such module, or it opens no inspector.
        """
        ran_ms, refused = self.asked.ran_ms(), self.asked.refused()
        outcome, reply = EvalOutcome.VALUE, dict[str, Any]()
        try:
            with opened_inspector(self.pid, time.monotonic() + limit) as inspector:
                inspector.ask("NodeRuntime.notifyWhenWaitingForDisconnect", enabled=True)
                worker = _named_worker(inspector, module)
                looker = Looker(worker.session if worker is not None else inspector)
                outcome, reply = looker.evaluate(expression, module if worker is None else None, depth, most)
        except InspectorLate:
            outcome, reply = EvalOutcome.HUNG, {"text": f"it did not end within {limit:g} s"}
        except InspectorGone:
            outcome, reply = EvalOutcome.DIED, {"text": death_told()}
        return Evaluated(
            process=self.process,
            outcome=outcome,
            type=str(reply.get("type", "")),
            text=masked_text(self.mask, expression, str(reply["text"]))
            if outcome in OF_THE_SERVICE
            else str(reply["text"]),
            length=reply.get("length"),
            parts=masked_parts(self.mask, reply.get("parts", ())),
            cut=bool(reply.get("cut", False)),
            traceback=self.mask.sentence(str(reply.get("traceback", ""))),
            ran_ms=ran_ms,
            refused=max(0, self.asked.refused() - refused),
        )

    def _state(self, inspector: Inspector, ran_ms: int) -> NodeState:
        inspector.ask("NodeRuntime.notifyWhenWaitingForDisconnect", enabled=True)
        looker = Looker(inspector)
        frames = looker.paused_frames(self.pid)
        workers = [self._worker(one) for one in workers_of(inspector)]
        modules, left_out = self._modules(looker)
        told = looker.call("state")
        return NodeState(
            process=self.process,
            version=told["version"],
            waits=not frames,
            frames=self._frames(looker, frames),
            frames_left_out=max(0, len(frames) - _MOST_FRAMES),
            heap=NodeHeap(**told["heap"]),
            active=told["active"],
            handles=[
                NodeHandle(kind=one["kind"], about=self.mask.sentence(one["about"]))
                for one in told["handles"]
            ],
            modules=modules,
            modules_left_out=left_out,
            workers=workers,
            ran_ms=ran_ms,
        )

    def _worker(self, worker: Worker) -> NodeWorker:
        try:
            looker = Looker(worker.session)
            frames = looker.paused_worker_frames()
            modules, left_out = self._modules(looker)
            told = looker.call("state")
        except InspectorLate:
            return NodeWorker(title=worker.title, file=worker.file, is_silent=True)
        return NodeWorker(
            title=worker.title,
            file=worker.file,
            waits=not frames,
            frames=self._frames(looker, frames),
            frames_left_out=max(0, len(frames) - _MOST_FRAMES),
            heap=NodeHeap(**told["heap"]),
            active=told["active"],
            modules=modules,
            modules_left_out=left_out,
        )

    def _modules(self, looker: Looker) -> tuple[dict[str, dict[str, str]], int]:
        """(names by file, how many more there are)."""
        modules, left_out = looker.modules()
        found = {
            file: masked_names(self.mask, looker.names(one.scope, one.exports))
            for file, one in modules.items()
        }
        return found, left_out

    def _frames(self, looker: Looker, frames: Sequence[Mapping[str, Any]]) -> list[NodeFrame]:
        return [self._frame(looker, one) for one in frames[:_MOST_FRAMES]]

    def _frame(self, looker: Looker, frame: Mapping[str, Any]) -> NodeFrame:
        place = frame["location"]
        script = looker.scripts.get(place["scriptId"], frame.get("url", ""))
        found: dict[str, str] = {}
        for scope in _local_scopes(frame["scopeChain"]) if is_own(script) else []:
            found |= looker.names(scope["object"]["objectId"])
        return NodeFrame(
            file=path_of(script),
            line=place["lineNumber"] + 1,
            function=frame["functionName"] or "(anonymous)",
            locals=masked_names(self.mask, found),
        )


def _named_worker(inspector: Inspector, title: str | None) -> Worker | None:
    """The first worker thread with this in its title."""
    if title is None:
        return None
    return next((one for one in workers_of(inspector) if title in one.title), None)


def _local_scopes(chain: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of functions and blocks, innermost last; without the module's, which is told for itself."""
    closures = [scope for scope in chain if scope["type"] == "closure"]
    return [scope for scope in reversed(chain) if scope["type"] in _LOCAL and scope not in closures[-1:]]

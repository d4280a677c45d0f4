"""A branch whose Python is asked, see ``relive.inspection.branches``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from relive.config import Settings
from relive.errors import RestoreFailed, UsageError
from relive.incidents.report.masking import Mask
from relive.inspection.branches import Questioned, chosen_process, questioned_branch
from relive.inspection.evaluated import OF_THE_SERVICE, EvalOutcome, Evaluated, death_told
from relive.inspection.masking import masked_names, masked_parts, masked_text
from relive.inspection.python.asking import InterpreterEnded, ask, is_python
from relive.inspection.python.calling import CallDied, CallLate
from relive.inspection.python.values import (
    BUCKETS,
    HeldType,
    LargeObject,
    PythonCensus,
    PythonFrame,
    PythonObjects,
    PythonStacks,
    PythonSums,
    PythonTask,
    PythonThread,
    PythonValues,
    PythonWait,
)
from relive.kernel import procfs
from relive.model.commit import CommitId
from relive.store import Store

__all__ = ["AskedBranch", "asked_branch", "asked_python", "most_informed"]

_MOST_FRAMES = 200
_KNOWS = 2.0  # [s] for a process to tell how much of the service it has loaded


@dataclass(frozen=True, slots=True)
class AskedBranch:
    """A branch, and the process in it that is asked; see ``asked_branch``."""

    asked: Questioned
    pid: int
    process: int
    mask: Mask

    def evaluate(
        self, expression: str, *, module: str | None, depth: int, most: int, limit: float, referrers: int = 0
    ) -> Evaluated:
        """The value of an expression, or what else came of it; once, since it may have left anything behind.

        Args:
            module: whose names it uses; None: the program's, all modules by their names, and what only one own module calls so.
            depth: levels of what is in the value; most: parts of it; referrers: as many of those who refer to it. limit: seconds.
        """
        question = {
            "kind": "evaluate",
            "expression": expression,
            "module": module,
            "depth": depth,
            "most": most,
            "referrers": referrers,
        }
        ran_ms, refused = self.asked.ran_ms(), self.asked.refused()
        outcome, reply = EvalOutcome.VALUE, dict[str, Any]()
        try:
            reply = self._ask(question, limit)
        except CallLate:
            outcome, reply = EvalOutcome.HUNG, {"text": f"it did not end within {limit:g} s"}
        except CallDied as error:
            outcome, reply = EvalOutcome.DIED, {"text": _death(error)}
        raised = reply.get("raised")
        if raised is not None:
            outcome = EvalOutcome.RAISED
            reply = {"type": raised["type"], "text": raised["message"], "traceback": raised["traceback"]}
        return Evaluated(
            process=self.process,
            outcome=outcome,
            type=reply.get("type", ""),
            text=masked_text(self.mask, expression, reply["text"])
            if outcome in OF_THE_SERVICE
            else reply["text"],
            length=reply.get("length"),
            parts=masked_parts(self.mask, reply.get("parts", ())),
            cut=reply.get("cut", False),
            referrers=[self.mask.sentence(one) for one in reply.get("referrers", ())],
            referrers_left_out=reply.get("referrers_left_out", 0),
            traceback=self.mask.sentence(reply.get("traceback", "")),
            ran_ms=ran_ms,
            refused=max(0, self.asked.refused() - refused),
        )

    def stacks(self, limit: float) -> PythonStacks:
        """All stacks with locals; raises RestoreFailed where the process does not answer."""
        ran_ms = self.asked.ran_ms()
        reply = self._answered({"kind": "stacks", "most": _MOST_FRAMES}, limit)
        return PythonStacks(
            process=self.process,
            threads=[
                PythonThread(
                    name=one["name"],
                    native=one["native"],
                    frames=[self._frame(frame) for frame in one["frames"]],
                )
                for one in reply["threads"]
            ],
            tasks=[
                PythonTask(**{**one, "frames": [self._frame(frame) for frame in one["frames"]]})
                for one in reply["tasks"]
            ],
            waits=[PythonWait(**one) for one in reply["waits"]],
            globals={name: masked_names(self.mask, values) for name, values in reply["globals"].items()},
            ran_ms=ran_ms,
        )

    def values(self, *, depth: int, most: int, limit: float) -> PythonValues:
        """All that the service's own modules lead to; raises as ``stacks``."""
        reply = self._answered({"kind": "dump", "depth": depth, "most": most}, limit)
        return PythonValues(
            process=self.process, values=masked_names(self.mask, reply["values"]), cut=reply["cut"]
        )

    def sums(self, *, depth: int, most: int, limit: float) -> PythonSums:
        """What tells which values differ from those of another commit of the same life; of as many as half the limit is enough for.

        Raises as ``stacks``.
        """
        wanted = {"kind": "sums", "depth": depth, "most": most, "buckets": BUCKETS, "seconds": limit / 2}
        return PythonSums(process=self.process, **self._answered(wanted, limit))

    def values_among(
        self, among: list[int], *, summed: int | None, depth: int, most: int, limit: float
    ) -> PythonValues:
        """As ``values``, of those in the sums of these numbers; ``summed``: how many values they are of; None: of all."""
        wanted = {"kind": "changed", "depth": depth, "most": most, "buckets": BUCKETS}
        reply = self._answered({**wanted, "among": among, "summed": summed}, limit)
        return PythonValues(
            process=self.process, values=masked_names(self.mask, reply["values"]), cut=reply["cut"]
        )

    def census(self, *, most: int, limit: float) -> PythonCensus:
        """Objects by type, and the sizes of up to ``most`` collections; raises as ``stacks``."""
        reply = self._answered({"kind": "census", "most": most}, limit)
        collections = {self.mask.sentence(path): one for path, one in reply["collections"].items()}
        return PythonCensus(process=self.process, types=reply["types"], collections=collections)

    def entries(self, paths: list[str], *, collections: int, most: int, limit: float) -> dict[str, list[str]]:
        """Keys or elements, newest last, of collections that ``census`` has told; raises as ``stacks``.

        Args:
            collections: as ``most`` of the census; most: of each.
        """
        reply = self._answered(
            {"kind": "entries", "paths": paths, "collections": collections, "most": most}, limit
        )
        return {path: [masked_text(self.mask, path, one) for one in found] for path, found in reply.items()}

    def addresses(self, types: list[str], *, most: int, limit: float) -> dict[str, str]:
        """By type, where its objects are, for ``holders`` of a later commit; those with over ``most`` are missing; raises as
        ``stacks``.
        """
        reply = self._answered({"kind": "addresses", "types": types, "most": most}, limit)
        return {name: told for name, told in reply.items() if told is not None}

    def holders(
        self, types: list[str], *, limit: float, known: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, str]:
        """By type, through what an object of it is held; those are missing that nothing found leads to; raises as ``stacks``.

        Args:
            known: by type, the addresses of objects that are not meant.
        """
        reply = self._answered({"kind": "holders", "types": types, "known": dict(known)}, limit)
        return {name: self.mask.sentence(path) for name, path in reply.items() if path is not None}

    def largest(self, *, most: int, limit: float) -> PythonObjects:
        """What takes most memory, ``most`` types and as many objects; raises as ``stacks``."""
        reply = self._answered({"kind": "largest", "most": most}, limit)
        types = sorted(reply["types"].items(), key=lambda item: (-item[1][1], item[0]))
        held = self.holders([name for name, _ in types[:most]], limit=limit)
        return PythonObjects(
            process=self.process,
            count=sum(count for _, (count, _) in types),
            size=sum(size for _, (_, size) in types),
            types=[
                HeldType(name=name, count=count, size=size, held_by=held.get(name))
                for name, (count, size) in types[:most]
            ],
            types_left_out=max(0, len(types) - most),
            objects=[self._large(one) for one in reply["objects"]],
        )

    def _large(self, one: Mapping[str, Any]) -> LargeObject:
        path = one["held_by"] or ""
        return LargeObject(
            **{
                **one,
                "text": masked_text(self.mask, path, one["text"]),
                "held_by": self.mask.sentence(path) or None,
            }
        )

    def _frame(self, frame: Mapping[str, Any]) -> PythonFrame:
        return PythonFrame(**{**frame, "locals": masked_names(self.mask, frame["locals"])})

    def _answered(self, question: Mapping[str, Any], limit: float) -> dict[str, Any]:
        try:
            return self._ask(question, limit)
        except CallLate as error:
            raise RestoreFailed(
                f"process {self.process} of the branch did not answer within {limit:g} s",
                cause="no thread of it came to where it can be asked, or its answer is too large",
                remedy="give it more time (--limit)",
            ) from error
        except CallDied as error:
            raise RestoreFailed(
                f"process {self.process} of the branch could not be asked"
                if isinstance(error, InterpreterEnded)
                else f"process {self.process} of the branch died when it was asked",
                cause=_death(error),
                remedy="ask a commit before it (`relive log`); `relive restore` brings this one back to look at it by hand",
            ) from error

    def _ask(self, question: Mapping[str, Any], limit: float) -> dict[str, Any]:
        reply: dict[str, Any] = ask(self.pid, question, limit)
        if "failed" in reply:
            raise UsageError(
                f"process {self.process} could not be asked",
                cause=self.mask.sentence(str(reply["failed"])),
                remedy="`relive eval --module NAME` uses the names of a module that is loaded",
            )
        return reply


def _death(error: CallDied) -> str:
    if isinstance(error, InterpreterEnded):
        return "its interpreter had ended: the commit was taken while the process exited; a commit before it still has its values"
    return death_told(error.signal)


@contextlib.contextmanager
def asked_branch(
    settings: Settings,
    store: Store,
    commit: CommitId,
    process: int | None,
    mask: Mask,
    busy: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[AskedBranch]:
    """A ``questioned_branch`` whose Python is asked.

    Args:
        process: number of a process inside; None: as ``most_informed`` chooses among those that run Python.
        busy: as of ``most_informed``.

    Raises:
        UsageError: there is no such process, or none that runs Python.
        RefUnknown, StoreError, RestoreFailed: as ``questioned_branch``.
    """
    best = partial(most_informed, busy=busy)
    with questioned_branch(settings, store, commit, mask) as asked:
        pid = chosen_process(asked.branch, process, is_python, best, _no_python())
        yield asked_python(asked, pid, mask)


def most_informed(pids: Sequence[int], busy: Mapping[int, int] = MappingProxyType({})) -> int:
    """Of processes that run Python the one that has loaded most of the service's own modules.

    The master of a server with workers, as gunicorn's, runs Python and has loaded nothing of the service, or as much as they
    (``--preload``), and serves nobody. So of equals one is taken that is no such master; of those the busiest, of those the first,
    which made the others and mostly serves. A process that does not tell counts as one that has loaded none; a single one is not
    asked.

    Args:
        busy: how much happened in each, by its number inside.
    """
    if len(pids) == 1:
        return pids[0]

    def rank(pid: int) -> tuple[int, bool, int]:
        count, is_master = _loaded(pid)
        return count, not is_master, busy.get(procfs.innermost_pid(pid) or 0, 0)

    return max(pids, key=rank)


def _loaded(pid: int) -> tuple[int, bool]:
    """How many of the service's own modules a process has loaded, and whether it only looks after others."""
    try:
        told = ask(pid, {"kind": "modules"}, _KNOWS)
    except (CallLate, CallDied):
        return 0, False
    return int(told.get("count", 0)), bool(told.get("is_master", False))


def asked_python(asked: Questioned, pid: int, mask: Mask) -> AskedBranch:
    """A process of a branch, to be asked."""
    return AskedBranch(asked, pid, procfs.innermost_pid(pid) or 0, mask)


def _no_python() -> UsageError:
    return UsageError(
        "no process of the commit can be asked a Python expression",
        cause="none runs a CPython whose functions can be found",
        remedy="`relive inspect` shows processes, descriptors and memory of any program; with --runtime what Node.js and Java say",
    )

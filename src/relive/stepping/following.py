"""Having the Python processes of a branch followed line by line: ``relive_stepper`` runs in each of them.

What it sees it writes into a file in memory, which is opened here through the process's descriptors: nothing in the branch's files
is changed, and the records are still there when the process has died.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import relive_inprocess.relive_stepper as stepper
from relive.errors import PlaceUnfit, RestoreFailed
from relive.inspection.python.asking import ask, is_python
from relive.inspection.python.calling import CallDied, CallLate
from relive.kernel import procfs
from relive.model.value import Value
from relive.sandbox.branch import Branch

__all__ = [
    "Followed",
    "Following",
    "HitRecord",
    "PlaceRecord",
    "Point",
    "PointPlace",
    "WatchedExpression",
    "WriteRecord",
    "follow",
    "refused",
]

_LIMIT, _LEAST = 30.0, 10.0  # [s] for one process; the least is what a busy host may need to ask it at all
_ROOM = 16 << 20  # [bytes] of one process's records
_HEADER = 32  # [bytes], as the program has it


@dataclass(frozen=True, slots=True)
class Point:
    """Expressions at a line: ``file`` as the end of its path."""

    file: str
    line: int
    expressions: tuple[str, ...]
    when: str | None = None


@dataclass(frozen=True, slots=True)
class WatchedExpression:
    """An expression whose changes are wanted; ``module``: whose names it uses, None: the program's, and all modules."""

    expression: str
    module: str | None = None


class PointPlace(Value):
    """Where a point is, as the process names it."""

    file: str
    line: int
    source: str


class _HitValue(Value):
    expression: str | None
    type: str
    text: str
    raised: bool


class HitRecord(Value):
    """A line with a point; ``request`` as the recorder numbers them, within process ``pid`` of the branch."""

    pid: int
    request: int
    position: int
    function: str
    values: list[_HitValue]


class PlaceRecord(Value):
    """A line; ``request`` as of a hit."""

    file: str
    line: int
    function: str
    source: str
    request: int
    position: int


class WriteRecord(Value):
    """A change of the watched value."""

    pid: int
    before: str
    after: str
    place: PlaceRecord | None
    others: list[PlaceRecord]


@dataclass(slots=True)
class Followed:
    """One process: the descriptor of its records; with a debugger, the ends of its two pipes."""

    out: int
    commands: int = -1
    replies: int = -1

    def data(self) -> bytes:
        parts, at = [], 0
        while at < _HEADER + _ROOM:
            data = os.pread(self.out, 1 << 20, at)
            if not data:
                break
            parts.append(data)
            at += len(data)
        return b"".join(parts)


@dataclass(slots=True)
class Following:
    """A branch that is followed. ``close`` it; its records can be read before, also when the branch has ended.

    Attributes:
        points: where they are, in the order in which they were given.
        first: the watched value as it was, by the process, as the branch numbers it; of those that know it.
        left_out: Python processes of the branch that are not followed.
    """

    points: list[PointPlace]
    first: dict[int, str] = field(default_factory=dict)
    processes: list[Followed] = field(default_factory=list)
    left_out: int = 0

    def hits(self) -> tuple[list[HitRecord], bool]:
        """(in the order of each process, whether there was no room for more)."""
        found, full = self._records("hit")
        with _understanding():
            return [HitRecord.model_validate(one) for one in found], full

    def writes(self) -> tuple[list[WriteRecord], bool]:
        """As ``hits``."""
        found, full = self._records("write")
        with _understanding():
            return [WriteRecord.model_validate(one) for one in found], full

    def is_evaluating(self) -> bool:
        """An expression had begun, and not ended, when this process was last heard of."""
        return any(int.from_bytes(os.pread(one.out, 8, 0), "little") for one in self.processes)

    def lines(self) -> int:
        """How many own lines ran."""
        return sum(int.from_bytes(os.pread(one.out, 8, 8), "little") for one in self.processes)

    def came_to(self) -> tuple[int, int]:
        """Of the request that is debugged: (position of its last line, that of the line that raised last; 0 where none did)."""
        headers = [os.pread(one.out, _HEADER, 0) for one in self.processes]
        found = [
            (int.from_bytes(one[16:24], "little"), int.from_bytes(one[24:32], "little")) for one in headers
        ]
        return max(found, default=(0, 0))

    def _records(self, kind: str) -> tuple[list[Any], bool]:
        found: list[Any] = []
        full = False
        with _understanding():
            for process in self.processes:
                data = process.data()
                whole = data[_HEADER:].split(b"\n")[:-1]  # the last may be cut by the process's end
                records = [json.loads(line) for line in whole]
                found += [one for one in records if one["kind"] == kind]
                full = full or any(one["kind"] == "full" for one in records)
        return found, full

    def close(self) -> None:
        """Let go of the records. May be called again."""
        while self.processes:
            one = self.processes.pop()
            for descriptor in (one.out, one.commands, one.replies):
                if descriptor >= 0:
                    os.close(descriptor)


@contextlib.contextmanager
def _understanding() -> Iterator[None]:
    """What the process says may be anything: the service's code runs beside the program that follows it."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OSError) as error:
        raise RestoreFailed(
            "what the branch's process said of its lines cannot be understood",
            cause=f"it ended, or something else than the program that follows it wrote there ({type(error).__name__})",
            remedy="`relive debug` looks at the process by hand",
        ) from error


def follow(
    branch: Branch,
    points: Sequence[Point],
    watch: WatchedExpression | None,
    most: int,
    session: Mapping[str, Any] | None = None,
    limit: float = _LIMIT,
    only: int = 0,
) -> Following:
    """Follow the branch's Python processes from now on; up to ``most`` records of each are kept.

    Args:
        limit: seconds for one process, in which a watched expression is evaluated for the first time; from 5 to 30.
        session: of a debugger, as the program in the process takes it.
        only: the process that the branch numbers so, if there is one; 0: all.

    Raises:
        PlaceUnfit: no process of it is Python, or none has such a line or name, or an expression is none.
        RestoreFailed: a process could not be asked.
    """
    question = {
        "points": [
            {"file": one.file, "line": one.line, "expressions": one.expressions, "when": one.when}
            for one in points
        ],
        "watch": {"expression": watch.expression, "module": watch.module} if watch is not None else None,
        "most": most,
        "bytes": _ROOM,
        "session": session,
    }
    pids = [pid for pid in procfs.tree_of(branch.facts.root) if is_python(pid)]
    if not pids:
        raise PlaceUnfit(
            "the service cannot be followed line by line",
            cause="none of its processes runs a CPython whose functions can be found",
            remedy="`relive debug` opens a debugger on native processes",
        )
    chosen = [pid for pid in pids if only and procfs.innermost_pid(pid) == only] or pids
    found, refusals = Following([], left_out=len(pids) - len(chosen)), []
    try:
        for pid in chosen:
            reply = _asked(pid, question, min(max(limit, _LEAST), _LIMIT))
            if "refused" in reply:
                refusals.append(reply["refused"])
                continue
            with _understanding():
                armed = _Armed.model_validate(reply)
                followed = Followed(_opened(pid, armed.out, os.O_RDONLY, stat.S_ISREG))
                found.processes.append(followed)
                if session is not None:
                    followed.commands = _opened(pid, armed.commands, os.O_WRONLY, stat.S_ISFIFO)
                    followed.replies = _opened(pid, armed.replies, os.O_RDONLY, stat.S_ISFIFO)
                found.points = found.points or armed.points
                if armed.first is not None:
                    found.first[armed.pid] = armed.first
        if not found.processes:
            raise refused(next((one for one in refusals if _is_near(one)), refusals[0]))
    except BaseException:
        found.close()
        raise
    return found


def _is_near(refusal: object) -> bool:
    """Said by a process that has what is meant, but for a part of it, which a server's parent has not."""
    return isinstance(refusal, dict) and refusal.get("is_near") is True


def refused(refusal: object) -> PlaceUnfit:
    """What the program in the process says cannot be meant, as an error."""
    parts = refusal if isinstance(refusal, dict) else {}
    what, why, remedy = (parts.get(name) for name in ("what", "why", "remedy"))
    return PlaceUnfit(
        str(what),
        cause=str(why) if why is not None else None,
        remedy=str(remedy) if remedy is not None else None,
    )


class _Armed(Value):
    """The answer of the program: numbers of descriptors in the process, and what was asked for."""

    out: int
    pid: int
    commands: int | None
    replies: int | None
    points: list[PointPlace]
    first: str | None


def _opened(pid: int, number: int | None, how: int, is_kind: Callable[[int], bool]) -> int:
    """A descriptor of the process, opened again. Which one it is the process has said: it is never waited for, and must be of that
    kind.
    """
    descriptor = os.open(f"/proc/{pid}/fd/{number}", how | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not is_kind(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("another kind of file")
    return descriptor


def _asked(pid: int, question: Mapping[str, Any], limit: float) -> dict[str, Any]:
    number = procfs.innermost_pid(pid)
    try:
        with _understanding():
            reply = ask(pid, question, limit, stepper)
    except CallLate as error:
        raise RestoreFailed(
            f"process {number} of the branch could not be followed",
            cause=f"no thread of it came to where it can be asked within {limit:g} s, or the expression did not end",
        ) from error
    except CallDied as error:
        raise RestoreFailed(
            f"process {number} of the branch died when it was to be followed",
            cause=f"signal {error.signal}" if error.signal else "it ended",
        ) from error
    if not isinstance(reply, dict) or "failed" in reply:
        raise RestoreFailed(
            f"process {number} of the branch could not be followed",
            cause=str(reply["failed"])
            if isinstance(reply, dict)
            else "it said something else than was asked",
        )
    return reply

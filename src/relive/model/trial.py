"""Trials as values: what other code a branch was given, and what it did with the request that had failed."""

from __future__ import annotations

from relive.model.commit import CommitId
from relive.model.value import Value

__all__ = [
    "TAG_PREFIX",
    "Effects",
    "FixRun",
    "FixTried",
    "NeighbourDifference",
    "NotSwapped",
    "Swapped",
    "Trial",
]

TAG_PREFIX = "kept-"  # of the tag that keeps the commit of a kept state


class NotSwapped(Value):
    """A part of a change that did not reach the living process, and why; ``file``: absolute."""

    file: str
    name: str
    why: str


class Swapped(Value):
    """What of a change reached the processes of a branch.

    Attributes:
        processes: how many had loaded one of the files.
        swapped: functions with other code, "FILE: NAME"; added: names that are new in a module or class.
        left: what did not reach them.
        files: that were written in the branch; unloaded: those that no process had loaded, and reads when it does.
        notes: such as a call that goes on with the old code.
    """

    processes: int = 0
    swapped: list[str] = []
    added: list[str] = []
    left: list[NotSwapped] = []
    files: list[str] = []
    unloaded: list[str] = []
    notes: list[str] = []


class Effects(Value):
    """What a branch did beside answering, for the judged request where nothing else is said.

    Attributes:
        calls: kind of event (query, http-call, ...) to how many; None where nobody recorded inside.
        unanswered: calls of the whole service for which the recording had no answer.
        files: that the whole service wrote, made or removed while requests were sent, at most a hundred; None: nobody looked.
    """

    calls: dict[str, int] | None = None
    unanswered: int = 0
    files: list[str] | None = []


class NeighbourDifference(Value):
    """A recorded request beside the judged one that ended otherwise than recorded; ``cured``: it failed then, and not now."""

    request: int
    asked: str
    difference: str
    cured: bool = False


class FixRun(Value):
    """One life with a fix.

    Attributes:
        fails: it ended in a failure, the same or another, or an earlier request did; None: it was not restored.
        result: in words: "no failure", "fails the same", ...
        missing, played: as of ``relive.model.outcome.Verdict``.
        elsewhere: earlier requests that failed, and had not when they were recorded.
    """

    fails: bool | None
    result: str
    status: int | None = None
    exception: str | None = None
    seconds: float | None = None
    difference: str | None = None
    missing: list[str] = []
    played: str | None = None
    effects: Effects | None = None
    elsewhere: list[NeighbourDifference] = []


class FixTried(Value):
    """What a fix did.

    Attributes:
        kind: "none", "patch", "state": values set or files written, or "fresh": a process that was started anew, with another
            environment or tree.
        refused: why it could not be tried; nothing is left of it then.
        still_there: probability that the failure is still there (``trial.findability``); None where nothing was run.
        more_runs: so many more clean ones until that is under 5 %.
        neighbours: how many recorded requests around the failing one were compared.
        breaks: those that ended otherwise than recorded, and did not so with the unchanged code, those that are cured among them.
    """

    name: str
    kind: str
    refused: str | None = None
    runs: list[FixRun] = []
    swapped: Swapped | None = None
    still_there: float | None = None
    more_runs: int = 0
    neighbours: int = 0
    breaks: list[NeighbourDifference] = []


class Trial(Value):
    """Fixes beside each other, on one state and request.

    Attributes:
        recorded: what had happened, in the words of a ``FixRun``.
        noise: what differed between two runs of the unchanged code: no fix did that.
        failed, ran: of the unchanged code.
        prior: the assumptions of ``still_there``, in a sentence.
        around: so many neighbours on each side were asked for.
        hint: where a fix failed the same since it came too late for this state, what to do, in a sentence.
    """

    incident: int
    service: str
    commit: CommitId
    request: int | None
    recorded: FixRun
    noise: list[str]
    failed: int
    ran: int
    prior: str
    fixes: list[FixTried]
    around: int = 0
    hint: str | None = None

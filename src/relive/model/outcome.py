"""Outcomes and verdicts as values: how a request ended, and whether a replay ended the same way."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

from relive.model.commit import CommitId

__all__ = ["End", "InsideEvent", "Miss", "Outcome", "Replay", "Run", "Stack", "Verdict", "VerdictKind"]


class Value(BaseModel):
    """Base of the values here: immutable."""

    model_config = ConfigDict(frozen=True)


class End(StrEnum):
    """How a request, or a stretch of the service's life, ended."""

    ANSWERED = "answered"
    BROKEN = "broken"
    NO_ANSWER = "no-answer"
    DIED = "died"
    NOTHING = "nothing"


class Stack(Value):
    """A stack as the service printed it, innermost frame last: ("file", line, "function")."""

    exception: str
    frames: list[tuple[str, int, str]]
    text: list[str]


class InsideEvent(Value):
    """Something that happened inside the service for the judged request, as it is compared.

    Attributes:
        kind: one of ``EventKind`` in ``relive.record.events``.
        lane: thread or task within the request.
        about: what is compared, by name (asked, answer, error, value, ...); what is long is a length and a digest.
    """

    kind: str
    lane: int
    about: dict[str, Any]


class Miss(Value):
    """A call in a replay to which the recording has no answer.

    Attributes:
        kind, asked: of the call; nearest: what the recorded call asked that differs least, if there is one left.
        differs: paths of what differs from it.
        policy: what became of it, "fail" or "pass" (the real call, in a sealed network).
    """

    kind: str
    asked: dict[str, Any]
    nearest: dict[str, Any] | None = None
    differs: list[str] = []
    policy: str


class Outcome(Value):
    """How it ended.

    Attributes:
        headers: of the answer, names in lower case; body: as text, or base64 if it is none.
        seconds: from the first byte of the request to the end.
        exit_status: of the service's root process as a shell shows it, if it died; signal: if one ended it.
        log: lines the service wrote to its standard error meanwhile.
        packets_left, refused: counters of the sandbox, None for a recorded outcome.
        events: what happened inside for the judged request, at most 2000; None where nothing is known of it.
        misses: calls of the whole service without a recorded answer, at most 100; empty for a recorded outcome.
    """

    end: End
    status: int | None = None
    headers: list[tuple[str, str]] = []
    body: str = ""
    body_is_base64: bool = False
    body_cut: int = 0
    seconds: float | None = None
    exit_status: int | None = None
    signal: int | None = None
    log: list[str] = []
    stack: Stack | None = None
    packets_left: int | None = None
    refused: int | None = None
    events: list[InsideEvent] | None = None
    misses: list[Miss] = []


class VerdictKind(StrEnum):
    """What a replay showed."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not-reproduced"
    DIVERGED = "diverged"
    FAILED_TO_RESTORE = "failed-to-restore"


class Verdict(Value):
    """A verdict with its reason.

    Attributes:
        difference: the first thing that differed, None if nothing that matters did.
        notes: differences that do not change the verdict and vary with time and port numbers.
        inside: the first event inside that differed where it is not the difference, calls without a recorded answer, and
            what makes the comparison of events weaker.
    """

    kind: VerdictKind
    difference: str | None = None
    notes: list[str] = []
    inside: list[str] = []


class Run(Value):
    """One replay in one branch.

    Attributes:
        forwarded: requests sent again before and beside the failing one.
        outcome: None when the branch could not be restored.
    """

    number: int
    verdict: Verdict
    outcome: Outcome | None
    forwarded: int
    restore_us: int | None
    seconds: float


class Replay(Value):
    """All runs of one ``relive replay``.

    Attributes:
        recorded: the outcome that the recording holds.
        reproduced: how many of the runs reproduced it.
    """

    service: str
    incident: int | None
    request: int | None
    commit: CommitId
    recorded: Outcome
    runs: list[Run]

    @property
    def reproduced(self) -> int:
        """Runs with the verdict "reproduced"."""
        return sum(run.verdict.kind is VerdictKind.REPRODUCED for run in self.runs)

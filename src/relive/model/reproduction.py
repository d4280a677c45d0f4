"""Reproductions as values: what a fresh process of a service did with the recorded request, and whether it failed the same way."""

from __future__ import annotations

from enum import StrEnum

from relive.model.failure import ErrorPackage
from relive.model.outcome import Miss, Stranger
from relive.model.value import Value

__all__ = ["Attempt", "Raised", "Reproduction", "ReproductionKind", "Tree"]


class ReproductionKind(StrEnum):
    """What one attempt showed; words mean what they mean in ``VerdictKind``."""

    REPRODUCED = "reproduced"
    SAME_ANSWER = "same-answer"
    NOT_REPRODUCED = "not-reproduced"
    DIVERGED = "diverged"
    COULD_NOT_START = "could-not-start"


class Raised(Value):
    """An exception that escaped, and where: the innermost frame of the service's own code.

    Attributes:
        type: "module.Class"; text: its message.
        file, function: empty, and line 0, when there was no frame.
        source: the line as it stood in the file, stripped; None when that could not be read.
    """

    type: str
    text: str
    fingerprint: str
    file: str = ""
    line: int = 0
    function: str = ""
    source: str | None = None

    @classmethod
    def of(cls, package: ErrorPackage) -> Raised:
        """What an error package tells."""
        frame = package.failing_frame()
        if frame is None:
            return cls(type=package.type, text=package.text, fingerprint=package.fingerprint)
        source = None
        if frame.source is not None and 0 <= frame.line - frame.source.first < len(frame.source.lines):
            source = frame.source.lines[frame.line - frame.source.first].strip()
        return cls(
            type=package.type,
            text=package.text,
            fingerprint=package.fingerprint,
            file=frame.file,
            line=frame.line,
            function=frame.function,
            source=source,
        )


class Tree(Value):
    """Which files the fresh process ran.

    Attributes:
        root: top of the repository that was checked out; None when the files are the host's as they are.
        revision: the commit (hex) of git that was checked out, None as above.
        is_recorded: they are of the revision that failed, as far as that is known.
        words: the same for people.
    """

    root: str | None = None
    revision: str | None = None
    is_recorded: bool = False
    words: str


class Attempt(Value):
    """One life of a fresh process.

    Attributes:
        difference: what differed first, or why it could not start; None if nothing that matters did.
        missing, evidence, unseen, played: as of ``relive.model.outcome.Verdict``.
        notes: what makes the comparison weaker, or differs without weight.
        raised: what escaped from the request (or the program); None if nothing did.
        status: of the answer; exit_status: of the service, as a shell shows it, if it ended.
        ended: how it ended where no exception had been seen, in words.
        log: last lines of its standard error.
        misses: calls without a recorded answer, of the request and of the time before it (policy "pass").
        unreached: where the service wanted to connect to and nobody was, from its start on.
        packets_left, refused: counters of the sandbox, None where it was not made.
        ready_seconds: until it listened; None if it never did or need not. seconds: of all.
    """

    number: int
    kind: ReproductionKind
    missing: list[str] = []
    difference: str | None = None
    evidence: list[str] = []
    unseen: list[str] = []
    played: str | None = None
    notes: list[str] = []
    raised: Raised | None = None
    status: int | None = None
    exit_status: int | None = None
    ended: str | None = None
    log: list[str] = []
    misses: list[Miss] = []
    unreached: list[Stranger] = []
    packets_left: int | None = None
    refused: int | None = None
    ready_seconds: float | None = None
    seconds: float = 0.0


class Reproduction(Value):
    """All attempts of one ``relive reproduce``.

    Attributes:
        request: method and target of what was sent; None when the program was only run.
        recorded: the exception; None where none was seen, and the answer is judged.
        recorded_status: of the answer; None when it is not known.
        recorded_end: how it ended where no exception was seen from inside, in words, with that of a stack in its log.
        placeholders: environment variables that held a placeholder in the place of a secret.
        notes: on what was started, for all attempts.
    """

    service: str
    incident: int
    command: list[str]
    directory: str
    user: str | None
    tree: Tree
    request: str | None
    recorded: Raised | None
    recorded_status: int | None
    recorded_end: str | None = None
    placeholders: list[str]
    notes: list[str]
    attempts: list[Attempt]

    @property
    def reproduced(self) -> int:
        """Attempts that reproduced it."""
        return sum(attempt.kind is ReproductionKind.REPRODUCED for attempt in self.attempts)

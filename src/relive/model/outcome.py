"""Outcomes and verdicts as values: how a request ended, and whether a replay ended the same way."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from relive.model.commit import CommitId
from relive.model.dependency import Dependency
from relive.model.value import Value

__all__ = [
    "End",
    "Fault",
    "InsideEvent",
    "Measured",
    "Miss",
    "Outcome",
    "Replay",
    "Run",
    "Stack",
    "Steps",
    "Stranger",
    "Stubbed",
    "ThreadPlace",
    "Unasked",
    "Verdict",
    "VerdictKind",
    "verdict_words",
]


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
        kind: one of ``EventKind`` in ``relive.recording.events``.
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
        differs: paths of what differs from it; to a stub in the words that ``--ignore`` takes.
        policy: what became of it, "fail" or "pass" (the real call, in a sealed network).
        to: address:port of the destination, connection: number of the connection in the branch, where a stub was asked.
    """

    kind: str
    asked: dict[str, Any]
    nearest: dict[str, Any] | None = None
    differs: list[str] = []
    policy: str
    to: str | None = None
    connection: int | None = None


class Unasked(Value):
    """A call that was recorded and not asked for in a replay; ``connection``: its number in the recording."""

    kind: str
    asked: dict[str, Any]
    to: str
    connection: int


class Stranger(Value):
    """A server that was never recorded, and how often the service wanted to connect to it.

    Attributes:
        to: address:port, the path of a UNIX domain socket, or ``@`` and its abstract name.
    """

    to: str
    times: int


class Stubbed(Value):
    """What the stubs of a branch did.

    Attributes:
        continued: connections of the commit that went on; opened: new ones that were taken.
        given: questions answered from the recording; simulated: those whose answer was worked out from it; missed: the others.
        left: how many calls were recorded up to the failure and not asked; unasked: the first twenty of them. None and empty
            where the recorder inside the service gave answers too, so that nobody can tell.
        strangers: destinations without a recording, at most a hundred.
        notes: what was not as it had been, in sentences.
    """

    continued: int
    opened: int = 0
    given: int
    simulated: int = 0
    missed: int
    left: int | None = None
    unasked: list[Unasked] = []
    strangers: list[Stranger] = []
    notes: list[str] = []


class ThreadPlace(Value):
    """Where a thread stands: its number inside, and its instruction and stack pointers.

    Attributes:
        runs: it does not wait in a system call, and was stopped there only to look; the next look finds it elsewhere.
    """

    thread: int
    instruction: int
    stack: int
    runs: bool = False


class Fault(Value):
    """A fatal signal of a process.

    Attributes:
        process: pid as inside; is_root: it is the service's first process; command: the thread's name.
        code: si_code, such as ``SEGV_MAPERR``; address: of the fault, None where the kernel gives none.
        place: where the thread stood; callers: which calls led there (``relive.kernel.return_addresses``); None where nobody kept
        that.
    """

    process: int
    is_root: bool
    signal: int
    code: str | None = None
    address: int | None = None
    command: str = ""
    place: ThreadPlace | None = None
    callers: list[int] | None = None


class Outcome(Value):
    """How it ended.

    Attributes:
        headers: of the answer, names in lower case; body: as text, or base64 if it is none.
        seconds: from the first byte of the request to the end.
        exit_status: of the service's root process as a shell shows it, if it died; signal: if one ended it.
        out_of_memory: the kernel killed a process of the service since its memory was used up.
        worker: the process that ended is not the service's first one, which may have gone on.
        fault: the fatal signal that it is judged by; of a recorded one what the incident holds.
        places: where the threads stood that had not given an answer; None where it is not asked for, or nobody kept it.
        log: lines the service wrote to its standard error meanwhile; of a recorded exit of a worker up to that.
        log_after: of such an exit, what others wrote of it.
        packets_left, refused: counters of the sandbox, None for a recorded outcome.
        unreached: where the service wanted to connect to and nobody was, since it was not recorded; empty for a recorded outcome.
            Where stubs answered, UNIX domain sockets only (the others are among ``stubs.strangers``).
        cut_off: other ends (ADDRESS:PORT) of connections of the commit that nobody had recorded and that are closed in the branch,
            where the service then used or closed them, too; empty for a recorded outcome.
        events: what happened inside for the judged request, at most 2000; None where nothing is known of it.
        misses: calls of the whole service without a recorded answer, at most 100; empty for a recorded outcome.
        stubs: what they did; None where there were none.
        elsewhere: workers that took nothing when a request of theirs was sent, so that another process may have it; empty for a
            recorded outcome.
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
    out_of_memory: bool = False
    worker: bool = False
    fault: Fault | None = None
    places: list[ThreadPlace] | None = None
    log: list[str] = []
    log_after: list[str] = []
    stack: Stack | None = None
    packets_left: int | None = None
    refused: int | None = None
    unreached: list[Stranger] = []
    cut_off: list[str] = []
    events: list[InsideEvent] | None = None
    misses: list[Miss] = []
    stubs: Stubbed | None = None
    elsewhere: list[int] = []


class VerdictKind(StrEnum):
    """What a replay showed. ``SAME_ANSWER``: it ended the same way, and the cause was not seen or something was missing."""

    REPRODUCED = "reproduced"
    SAME_ANSWER = "same-answer"
    NOT_REPRODUCED = "not-reproduced"
    DIVERGED = "diverged"
    FAILED_TO_RESTORE = "failed-to-restore"


def verdict_words(kind: str) -> str:
    """The verdict as it is told to people: ``same answer, cause not seen``."""
    return "same answer, cause not seen" if kind == VerdictKind.SAME_ANSWER else kind.replace("-", " ")


class Verdict(Value):
    """A verdict with its reason.

    Attributes:
        difference: the first thing that differed, None if nothing that matters did.
        missing: what the service wanted in the branch that nobody had recorded: servers, answers. Whatever the word is, it is
            to be told first.
        evidence: what showed the cause on both sides alike.
        unseen: why that is not enough: what was missing in the branch, and what could not be compared.
        played: what the recording answered in the branch, and what it could not, in one line; None where nothing ran.
        notes: differences that do not change the verdict and vary with time and port numbers.
        inside: the first event inside that differed where it is not the difference, calls without a recorded answer, and
            what makes the comparison of events weaker.
    """

    kind: VerdictKind
    missing: list[str] = []
    difference: str | None = None
    evidence: list[str] = []
    unseen: list[str] = []
    played: str | None = None
    notes: list[str] = []
    inside: list[str] = []


class Steps(Value):
    """How long the steps of a run took, in seconds.

    Attributes:
        restore: from the order to the running branch, without what follows.
        seal: proving that there is no way out, before and after.
        stubs: deciding what the service is answered, and setting it up.
        request: sending again what was recorded, up to the outcome.
        compare: judging it.
    """

    restore: float
    seal: float
    stubs: float
    request: float
    compare: float


class Measured(Value):
    """What a branch did while its request was replayed, where that was asked for.

    Attributes:
        system_calls: how many of each, of all processes.
        allocations: bytes that Python has allocated since and still holds, by ``FILE:LINE``.
        figures: what the processes took, by name: CPU, page faults and switches of this time, the rest as it was at its end.
        troubles: what could not be measured, in sentences.
    """

    system_calls: dict[str, int]
    allocations: dict[str, int]
    figures: dict[str, int]
    troubles: list[str] = []


class Run(Value):
    """One replay in one branch.

    Attributes:
        forwarded: requests sent again before and beside the failing one.
        outcome: None when the branch could not be restored; ``steps`` too.
        restore_us: what restoring the branch took, or putting it back.
        is_put_back: the branch was that of an earlier run, put back in place to what its commit was; else restored anew.
        anew_because: why it was restored anew though there was one of an earlier run; None: there was none, or it was put back.
        measured: None where nobody asked for it.
    """

    number: int
    verdict: Verdict
    outcome: Outcome | None
    forwarded: int
    restore_us: int | None
    seconds: float
    is_put_back: bool = False
    anew_because: str | None = None
    steps: Steps | None = None
    measured: Measured | None = None


class Replay(Value):
    """All runs of one ``relive replay``.

    Attributes:
        recorded: the outcome that the recording holds.
        unrecorded: servers that the service was connected to and nobody recorded; whether it met one is in its runs' verdicts.
        reproduced: how many of the runs reproduced it.
        prepare_seconds: reading the recording, once for all runs.
        changed: what of the state was changed in each branch before anything was sent, a line each.
    """

    service: str
    incident: int | None
    request: int | None
    commit: CommitId
    recorded: Outcome
    unrecorded: list[Dependency] = []
    runs: list[Run]
    prepare_seconds: float = 0.0
    changed: list[str] = []

    @property
    def reproduced(self) -> int:
        """Runs with the verdict "reproduced"."""
        return sum(run.verdict.kind is VerdictKind.REPRODUCED for run in self.runs)

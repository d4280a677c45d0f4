"""An incident as a value: a failure that was seen."""

from __future__ import annotations

from enum import StrEnum

from relive.model.commit import CommitId
from relive.model.value import Value

__all__ = ["ENDS", "FailureKind", "Incident", "IncidentFacts", "Occurrence", "Origin", "Sighting"]


class FailureKind(StrEnum):
    """What was seen to fail, and how."""

    EXIT = "exit"
    SIGNAL = "signal"
    ANSWER = "answer"
    BROKEN = "broken"
    HANG = "hang"
    MEMORY = "out-of-memory"
    EXCEPTION = "exception"
    HEALTH = "unhealthy"
    RESTARTS = "restart-loop"
    LOG = "log"


# Of the service, or of a process of it; and what happens to a request of a service that goes on.
ENDS = frozenset({FailureKind.SIGNAL, FailureKind.EXIT, FailureKind.MEMORY})
_OF_REQUESTS = frozenset({FailureKind.ANSWER, FailureKind.BROKEN, FailureKind.HANG})


class Sighting(Value):
    """A failure at the moment it was seen, before it has become an incident.

    Attributes:
        fingerprint: equal for failures that count as the same within one life.
        summary: one line for people.
        request: number of the request it happened to, if known; sequence, began_wall_ns: of the event at which that request
            began; of a WebSocket, of the last one before it failed.
        log_begin: size in bytes of the service's standard error when that request began; log_held: when a worker stood before
            its exit, None where none did: what its master wrote of that comes behind.
        signal, thread: of a fatal signal; pids as inside the capsule.
        worker: the process is not the service's first one, which went on.
        instruction, stack: of a fatal signal: where the thread stood.
        callers: of a fatal signal: which calls led to it (``relive.kernel.return_addresses``); None where that is not known.
        sender: who sent the signal, in words; None where nobody did, or it is not known.
        from_outside: a process that is not of the service sent it, or a killed CRIU left it, so that no replay can bring it back.
        starting: the service had not begun to listen yet, or was not committed for the first time.
        exit_status: of the service's root process, as a shell shows it.
        where: of an exception, what it escaped from (``relive.model.failure.Where``).
        throw: of an exception, the name by which the failing thread waits in the commit that was taken at it; None when
            it does not stand there any more.
    """

    kind: FailureKind
    fingerprint: str
    summary: str
    seen_wall_ns: int
    request: int | None = None
    sequence: int | None = None
    began_wall_ns: int | None = None
    log_begin: int | None = None
    log_held: int | None = None
    open_requests: list[int] = []
    signal: int | None = None
    signal_code: str | None = None
    address: int | None = None
    pid: int | None = None
    thread: int | None = None
    instruction: int | None = None
    stack: int | None = None
    callers: list[int] | None = None
    worker: bool = False
    sender: str | None = None
    from_outside: bool = False
    starting: bool = False
    exit_status: int | None = None
    answer_status: int | None = None
    where: str | None = None
    throw: str | None = None

    @property
    def sent_alone(self) -> int | None:
        """Number of the one request that it happened to, which a fresh process can be sent alone.

        None where there is none, where several were open and any of them may be to blame, and of exceptions, which need not have
        come of the request.
        """
        if self.from_outside:
            return None
        if self.kind in ENDS and self.request is None:
            return self.open_requests[0] if len(self.open_requests) == 1 else None
        return self.request if self.kind in ENDS or self.kind in _OF_REQUESTS else None


class Occurrence(Value):
    """One time that a failure was seen.

    Attributes:
        before: the last commit before the failing request (or before the failure, without one).
        log_end: size in bytes of the service's standard error when it was written down.
    """

    sighting: Sighting
    before: CommitId | None
    log_end: int | None = None


class Origin(Value):
    """Where an incident that was pulled or imported was seen.

    Attributes:
        id: that it has in every home; number: that it has there; signer: public key of who sent it, in hexadecimal.
    """

    id: str
    number: int
    signer: str


class IncidentFacts(Value):
    """A failure that was seen, with the commits that belong to it, but for what the service logged.

    Attributes:
        sighting, before, log_end: of the first time; latest: of the last time, None if it was seen once.
        at: the commit taken at the moment of failure, where there is one.
        times: how often it was seen in this life; last_seen_wall_ns: when it was seen last.
        origin: of one that came from another home; None: it was seen here.
    """

    number: int
    service: str
    life: str
    sighting: Sighting
    before: CommitId | None
    at: CommitId | None
    times: int = 1
    last_seen_wall_ns: int
    log_end: int | None = None
    latest: Occurrence | None = None
    origin: Origin | None = None

    def occurrence(self, *, first: bool) -> Occurrence:
        """The first or the latest time it was seen.

        The first also where the latest is a death with the same commit before it: between them lies the first death already.
        """
        is_one_way = (
            self.sighting.kind in ENDS and self.latest is not None and self.latest.before == self.before
        )
        if self.latest is None or first or is_one_way:
            return Occurrence(sighting=self.sighting, before=self.before, log_end=self.log_end)
        return self.latest


class Incident(IncidentFacts):
    """All that is kept of it in its file.

    Attributes:
        log_tail: lines of the service's standard error the first time: the last, or the first of a request that was answered.
    """

    log_tail: list[str] = []

"""Everything that is kept of a failure, gathered; nothing of it but the incident and its package has to be there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from relive.errors import IncidentUnknown
from relive.incidents.evidence import beginning_of, bodies_of, events_of, launch_of, package_of, request_of
from relive.incidents.incidents import Incidents
from relive.kernel.procfs import Mapping as MappedCode
from relive.model.failure import ErrorPackage, FailedRequest
from relive.model.incident import FailureKind, Incident, Sighting
from relive.model.launch import Launch
from relive.model.outcome import Outcome
from relive.model.reproduction import Raised
from relive.recording.events import Event, EventKind
from relive.replay.usual_log import NOTHING_USUAL, UsualLog

__all__ = ["FreshInput", "case_of"]


@dataclass(frozen=True, slots=True)
class FreshInput:
    """What lies beside one incident.

    Attributes:
        package: None where no exception was seen; then ``ended`` tells how the request, or the service, ended.
        events: of the failing request, or of the process where it failed outside of any.
        beginning: of its process and of those that forked it.
        wire: the request as the proxy saw it; None where it did not, or not whole.
        bodies: directory of long bodies.
        environment: of the service, with its secrets, where there is no package; empty: not known.
        number: of the failing request in its process, where there is no package; 0: not known.
        hung_seconds: without an answer for so long the request counts as hanging; None where it did not hang.
        code: where the code of the process lay that got the fatal signal of ``ended``.
        memory: bytes that the service might use; None: no limit, or not known.
        usual: what the service writes to its log where nothing fails.
    """

    incident: Incident
    package: ErrorPackage | None
    events: list[Event]
    beginning: list[Event]
    launch: Launch | None
    wire: bytes | None
    bodies: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    ended: Outcome | None = None
    number: int = 0
    hung_seconds: float | None = None
    code: Sequence[MappedCode] = ()
    memory: int | None = None
    usual: UsualLog = NOTHING_USUAL

    @property
    def started(self) -> Event | None:
        """The beginning of the failing request, or job; None where it failed outside of any, or that is not kept."""
        for event in self.events:
            if event.kind is EventKind.HANDLING_STARTED and event.request == self.judged:
                return event
        return None

    @property
    def judged(self) -> int:
        """The number of the failing request in its process; 0 where it failed outside of any, or that is not known."""
        return self.failed_request.number if self.failed_request is not None else self.number

    @property
    def failed_request(self) -> FailedRequest | None:
        """As the error package has it."""
        return self.package.request if self.package is not None else None

    @property
    def pid(self) -> int | None:
        """Of the process that failed, as it saw itself; None where that is not known."""
        return self.package.pid if self.package is not None else None

    @property
    def raised(self) -> Raised | None:
        """The exception that escaped; None where none was seen."""
        return Raised.of(self.package) if self.package is not None else None

    @property
    def is_job(self) -> bool:
        """It failed in a job of a queue."""
        return self.failed_request is not None and self.failed_request.is_job

    @property
    def recorded_status(self) -> int | None:
        """Of the answer to the failing request; None when it is not kept."""
        if self.ended is not None:
            return self.ended.status
        for event in self.events:
            status = event.fields.get("status")
            if event.kind is EventKind.HANDLING_ENDED and isinstance(status, int):
                return status
        return self.incident.sighting.answer_status


def case_of(directory: Path, number: int, without: Callable[[Incident], FreshInput]) -> FreshInput:
    """Gather what is kept of an incident.

    Args:
        directory: of the incidents, or another one with files that have such names; of these only the package must be there.
        without: gathers what is known of an incident that has no package.

    Raises:
        IncidentUnknown: there is neither an incident nor a package.
        RecordingCorrupt: what lies there cannot be read.
    """
    package = package_of(directory, number)
    try:
        incident = Incidents(directory).get(number)
    except IncidentUnknown:
        if package is None:
            raise
        incident = _of_package(number, package)
    if package is None:
        return without(incident)
    return FreshInput(
        incident,
        package,
        events_of(directory, number),
        beginning_of(directory, number),
        launch_of(directory, number),
        request_of(directory, number),
        bodies_of(directory, number),
    )


def _of_package(number: int, package: ErrorPackage) -> Incident:
    """As much of an incident as its package tells."""
    sighting = Sighting(
        kind=FailureKind.EXCEPTION,
        fingerprint=f"exception {package.fingerprint}",
        summary=package.type,
        seen_wall_ns=package.wall_ns,
        pid=package.pid,
        where=package.where,
    )
    name = Path(package.argv[0]).name if package.argv else "a service"
    return Incident(
        number=number,
        service=name,
        life="",
        sighting=sighting,
        before=None,
        at=None,
        last_seen_wall_ns=package.wall_ns,
    )

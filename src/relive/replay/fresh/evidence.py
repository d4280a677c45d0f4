"""Everything that is kept of a failure, gathered; nothing of it but the incident and its package has to be there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relive.errors import IncidentUnknown, PackageMissing
from relive.incidents.evidence import beginning_of, bodies_of, events_of, launch_of, package_of, request_of
from relive.incidents.incidents import Incidents
from relive.model.failure import ErrorPackage
from relive.model.incident import FailureKind, Incident, Sighting
from relive.model.launch import Launch
from relive.recording.events import Event, EventKind

__all__ = ["Case", "case_of"]


@dataclass(frozen=True, slots=True)
class Case:
    """What lies beside one incident.

    Attributes:
        events: of the failing request, or of the process where it failed outside of any.
        beginning: of its process and of those that forked it.
        wire: the request as the proxy saw it; None where it did not, or not whole.
        bodies: directory of long bodies.
    """

    incident: Incident
    package: ErrorPackage
    events: list[Event]
    beginning: list[Event]
    launch: Launch | None
    wire: bytes | None
    bodies: Path

    @property
    def started(self) -> Event | None:
        """The beginning of the failing request, or job; None where it failed outside of any, or that is not kept."""
        for event in self.events:
            if event.kind is EventKind.HANDLING_STARTED and event.request == self.judged:
                return event
        return None

    @property
    def judged(self) -> int:
        """The number of the failing request in its process; 0 where it failed outside of any."""
        return self.package.request.number if self.package.request is not None else 0

    @property
    def is_job(self) -> bool:
        """It failed in a job of a queue."""
        return self.package.request is not None and self.package.request.server in ("rq", "celery")

    @property
    def recorded_status(self) -> int | None:
        """Of the answer to the failing request; None when it is not kept."""
        for event in self.events:
            status = event.fields.get("status")
            if event.kind is EventKind.HANDLING_ENDED and isinstance(status, int):
                return status
        return self.incident.sighting.answer_status


def case_of(directory: Path, number: int) -> Case:
    """Gather what is kept of an incident.

    Args:
        directory: of the incidents, or another one with files that have such names; of these only the package must be there.

    Raises:
        IncidentUnknown: there is neither an incident nor a package.
        PackageMissing: it has no error package.
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
        raise PackageMissing(
            f"incident {number} has no error package",
            cause="no Python exception was seen to escape, or the recorder was off",
            remedy=f"`relive replay {number}` brings the failure back from a commit",
        )
    return Case(
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

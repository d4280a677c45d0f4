"""Everything that is kept of a failure, gathered; nothing of it but the incident and its package has to be there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from relive.config import Settings
from relive.errors import PackageMissing
from relive.model.failure import ErrorPackage
from relive.model.incident import Incident
from relive.model.launch import Launch
from relive.record.events import Event, EventKind
from relive.store.evidence import beginning_of, bodies_of, events_of, launch_of, package_of, request_of
from relive.store.incidents import Incidents

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


def case_of(settings: Settings, number: int) -> Case:
    """Gather what is kept of an incident.

    Raises:
        IncidentUnknown: there is none.
        PackageMissing: it has no error package.
        RecordingCorrupt: what lies there cannot be read.
    """
    directory = settings.incidents
    incident = Incidents(directory).get(number)
    package = package_of(directory, number)
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

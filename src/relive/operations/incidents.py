"""Incidents: failures that were seen. All that is known of one is in ``incident_detail``."""

from __future__ import annotations

from pydantic import Field

from relive.config import Settings
from relive.incidents.incidents import IncidentOrder, IncidentQuery, Incidents
from relive.incidents.report.masking import Mask, masked_facts
from relive.model.incident import FailureKind, IncidentFacts
from relive.operations.operation import Params, Result
from relive.operations.progress import Progress
from relive.operations.targets import tend

__all__ = [
    "IncidentLine",
    "IncidentPage",
    "IncidentsParams",
    "page_of_incidents",
]


class IncidentLine(IncidentFacts):
    """An incident in a list; ``exception`` in short, ``KeyError: 'EUR'``, empty where none is known."""

    exception: str = ""

    @classmethod
    def of(cls, incident: IncidentFacts, exception: str) -> IncidentLine:
        """Without what else is kept of it."""
        # ``model_dump`` copies each value, which costs as much as reading them.
        return cls(
            **{name: getattr(incident, name) for name in IncidentFacts.model_fields}, exception=exception
        )


class IncidentsParams(Params):
    """Which incidents; all that is given must hold."""

    service: str | None = Field(default=None, description="Only those of this service")
    search: str | None = Field(
        default=None, description="Only with these words in what failed or the exception"
    )
    kind: FailureKind | None = Field(default=None, description="Only those that failed in this way")
    fingerprint: str | None = Field(default=None, description="Only those that count as the same failure")
    since_wall_ns: int | None = Field(
        default=None, ge=0, lt=1 << 63, description="Seen at or after this time"
    )
    until_wall_ns: int | None = Field(default=None, ge=0, lt=1 << 63, description="Seen before this time")
    order: IncidentOrder = Field(
        default=IncidentOrder.NUMBER, description="By number, or by when it was seen last"
    )
    after: str | None = Field(default=None, description="`next` of the page before")
    limit: int = Field(default=50, ge=1, description="At most so many")


class IncidentPage(Result):
    """Incidents, newest first, a page of them."""

    items: list[IncidentLine]
    next: str | None


def page_of_incidents(settings: Settings, params: IncidentsParams, progress: Progress) -> IncidentPage:
    """One page, secrets masked; see ``Incidents.page``. Raises UsageError."""
    tend(settings, progress)
    mask = Mask(settings.secret_patterns, settings.secret_names)
    incidents = Incidents(settings.incidents)
    query = IncidentQuery(
        service=params.service,
        text=params.search,
        kind=params.kind,
        fingerprint=params.fingerprint,
        since_wall_ns=params.since_wall_ns,
        until_wall_ns=params.until_wall_ns,
        order=params.order,
    )
    page = incidents.page(query, after=params.after, limit=params.limit)
    exceptions = {one.number: one.exception for one in page.items}
    found = [masked_facts(one, mask) for one in incidents.read(exceptions)]
    lines = [IncidentLine.of(one, mask.sentence(exceptions[one.number])) for one in found]
    return IncidentPage(items=lines, next=page.next)

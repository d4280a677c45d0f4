"""Incidents: failures that were seen, and all that is known of one."""

from __future__ import annotations

import json
from enum import StrEnum

from relive.analyse.account import Account, account_of, exception_of, masked_incident
from relive.analyse.masking import Mask
from relive.config import Settings
from relive.model.incident import Incident
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store import Page
from relive.store.incidents import IncidentQuery, Incidents

__all__ = ["IncidentLine", "Rendering", "list_incidents", "page_incidents", "rendered", "show_incident"]


class IncidentLine(Incident):
    """An incident in a list; ``exception`` in short, ``KeyError: 'EUR'``, empty where none is known."""

    exception: str = ""


def list_incidents(settings: Settings, service: str | None, progress: Progress) -> list[IncidentLine]:
    """Those of a service, or all, newest first; secrets are masked."""
    tend(settings, progress)
    mask = Mask(settings.secret_patterns, settings.secret_names)
    return [
        IncidentLine(**dict(masked_incident(one, mask)), exception=exception_of(settings, one))
        for one in Incidents(settings.incidents).list(service)
    ]


def page_incidents(
    settings: Settings, query: IncidentQuery, progress: Progress, *, after: str | None, limit: int
) -> Page[IncidentLine]:
    """A page of the incidents that fit, newest first, secrets masked; see ``Incidents.page``. Raises UsageError."""
    tend(settings, progress)
    mask = Mask(settings.secret_patterns, settings.secret_names)
    incidents = Incidents(settings.incidents)
    page = incidents.page(query, after=after, limit=limit)
    exceptions = {one.number: one.exception for one in page.items}
    found = [
        IncidentLine(**dict(masked_incident(one, mask)), exception=exceptions[one.number])
        for one in incidents.read(exceptions)
    ]
    return Page(found, page.after)


def show_incident(settings: Settings, number: int, progress: Progress) -> Account:
    """All that is known of it, secrets masked; raises IncidentUnknown."""
    tend(settings, progress)
    return account_of(settings, Incidents(settings.incidents).get(number))


class Rendering(StrEnum):
    """A form in which other programs read an incident."""

    HTML = "html"
    OTLP = "otlp"
    HAR = "har"


def rendered(account: Account, form: Rendering) -> str:
    """The incident as a page for browsers, as OpenTelemetry spans (OTLP/JSON), or its HTTP requests as HAR 1.2."""
    match form:
        case Rendering.HTML:
            from relive.analyse.incidentpage import incident_page

            return incident_page(account)
        case Rendering.OTLP:
            from relive.analyse.spans import spans_of

            return json.dumps(spans_of(account), indent=1)
        case Rendering.HAR:
            from relive.analyse.har import har_of

            return json.dumps(har_of(account), indent=1, ensure_ascii=False)

"""Incidents: failures that were seen, and all that is known of one."""

from __future__ import annotations

import json
from enum import StrEnum

from pydantic import Field

from relive.analyse.account import Account, account_of, masked_incident
from relive.analyse.masking import Mask
from relive.config import Settings
from relive.model.failure import Frame
from relive.model.incident import FailureKind, Incident
from relive.operations.operation import Result, Wish
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store.incidents import IncidentOrder, IncidentQuery, Incidents

__all__ = [
    "IncidentLine",
    "IncidentPage",
    "IncidentsWish",
    "Rendering",
    "page_of_incidents",
    "rendered",
    "show_incident",
    "without_locals",
]


class IncidentLine(Incident):
    """An incident in a list; ``exception`` in short, ``KeyError: 'EUR'``, empty where none is known."""

    exception: str = ""


class IncidentsWish(Wish):
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


def page_of_incidents(settings: Settings, wish: IncidentsWish, progress: Progress) -> IncidentPage:
    """One page, secrets masked; see ``Incidents.page``. Raises UsageError."""
    tend(settings, progress)
    mask = Mask(settings.secret_patterns, settings.secret_names)
    incidents = Incidents(settings.incidents)
    query = IncidentQuery(
        service=wish.service,
        text=wish.search,
        kind=wish.kind,
        fingerprint=wish.fingerprint,
        since_wall_ns=wish.since_wall_ns,
        until_wall_ns=wish.until_wall_ns,
        order=wish.order,
    )
    page = incidents.page(query, after=wish.after, limit=wish.limit)
    exceptions = {one.number: one.exception for one in page.items}
    found = [
        IncidentLine(**dict(masked_incident(one, mask)), exception=exceptions[one.number])
        for one in incidents.read(exceptions)
    ]
    return IncidentPage(items=found, next=page.next)


def show_incident(settings: Settings, number: int, progress: Progress) -> Account:
    """All that is known of it, secrets masked; raises IncidentUnknown."""
    tend(settings, progress)
    return account_of(settings, Incidents(settings.incidents).get(number))


def without_locals(account: Account) -> Account:
    """The same for those who may not see what a process had in memory: each frame says only how many locals it had."""
    package = account.package
    if package is None:
        return account
    chain = [
        link.model_copy(update={"frames": [_without_locals(frame) for frame in link.frames]})
        for link in package.chain
    ]
    return account.model_copy(update={"package": package.model_copy(update={"chain": chain})})


def _without_locals(frame: Frame) -> Frame:
    return frame.model_copy(update={"locals": {}, "locals_cut": frame.locals_cut + len(frame.locals)})


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

"""All that is known of an incident, also in forms that other programs read."""

from __future__ import annotations

import json
from enum import StrEnum

from relive.config import Settings
from relive.incidents.incidents import Incidents
from relive.incidents.report.detail import Account, account_of
from relive.operations.progress import Progress
from relive.operations.targets import tend

__all__ = ["Rendering", "rendered", "show_incident"]


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
            from relive.incidents.report.page import incident_page

            return incident_page(account)
        case Rendering.OTLP:
            from relive.incidents.report.spans import spans_of

            return json.dumps(spans_of(account), indent=1)
        case Rendering.HAR:
            from relive.incidents.report.har import har_of

            return json.dumps(har_of(account), indent=1, ensure_ascii=False)

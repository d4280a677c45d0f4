"""All that is known of an incident, also in forms that other programs read."""

from __future__ import annotations

import json
from enum import StrEnum

from relive.analyse.account import Account, account_of
from relive.config import Settings
from relive.model.failure import Frame
from relive.operations.progress import Progress
from relive.operations.targets import tend
from relive.store.incidents import Incidents

__all__ = ["Rendering", "rendered", "show_incident", "without_locals"]


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

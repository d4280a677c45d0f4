"""Failures that were seen, and all that is known of one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from relive.config import Settings
from relive.incidents.report.detail import Account
from relive.operations.incident_detail import Rendering, rendered, show_incident
from relive.operations.incidents import IncidentPage, IncidentsParams, page_of_incidents
from relive.operations.progress import Silent
from relive.operations.redaction import account_without_memory, facts_without_memory
from relive.server.authentication import Caller
from relive.server.credentials import Scope
from relive.server.routers.provided import Configured, Reader

__all__ = ["router"]

router = APIRouter(prefix="/incidents", tags=["incidents"])
Number = Annotated[int, Path(ge=1, le=(1 << 53) - 1, description="Number of the incident")]
_TYPES = {
    Rendering.HTML: "text/html; charset=utf-8",
    Rendering.OTLP: "application/json",
    Rendering.HAR: "application/json",
}
# The page runs no script and loads nothing; a browser is told so too.
_ALONE = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"}


class IncidentsQuery(IncidentsParams):
    """Which incidents, in pages that a server can make."""

    limit: int = Field(default=50, ge=1, le=500, description="At most so many")


@router.get("", operation_id="list_incidents")
def listed(settings: Configured, caller: Reader, params: Annotated[IncidentsQuery, Query()]) -> IncidentPage:
    """Incidents, newest first, a page at a time; secrets are masked"""
    page = page_of_incidents(settings, params, Silent())
    if Scope.MEMORY in caller.scopes:
        return page
    return page.model_copy(update={"items": [facts_without_memory(one) for one in page.items]})


@router.get("/{number}", operation_id="show_incident")
def shown(number: Number, settings: Configured, caller: Reader) -> Account:
    """All that is known of it: the exception, frames the timeline. For the scope memory also locals, logs, bodies, answers"""
    return _account(settings, number, caller)


def _account(settings: Settings, number: int, caller: Caller) -> Account:
    found = show_incident(settings, number, Silent())
    return found if Scope.MEMORY in caller.scopes else account_without_memory(found)


@router.get(
    "/{number}/{form}",
    operation_id="render_incident",
    response_class=Response,
    responses={200: {"content": {"text/html": {}, "application/json": {}}, "description": "In that form"}},
)
def render(number: Number, form: Rendering, settings: Configured, caller: Reader) -> Response:
    """As a page for browsers (html), as OpenTelemetry spans (otlp), or its HTTP requests as HAR 1.2 (har)"""
    text = rendered(_account(settings, number, caller), form)
    return Response(text.encode("utf-8", "backslashreplace"), media_type=_TYPES[form], headers=_ALONE)

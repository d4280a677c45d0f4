"""What was recorded of each life of a service."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from relive.incidents.report.proxied import Proxied
from relive.operations.recordings import (
    LifeRecording,
    RequestPage,
    RequestsParams,
    list_recordings,
    list_requests,
    show_request,
)
from relive.operations.redaction import request_without_bodies
from relive.server.credentials import Scope
from relive.server.routers.provided import Configured, Reader

__all__ = ["router"]

router = APIRouter(prefix="/recordings", tags=["recordings"])
Service = Annotated[str, Path(max_length=200)]
Life = Annotated[str, Path(max_length=200)]
Number = Annotated[int, Path(ge=1, le=(1 << 53) - 1)]


@router.get("", operation_id="list_recordings")
def listed(
    settings: Configured, _caller: Reader, service: Annotated[str | None, Query(max_length=200)] = None
) -> list[LifeRecording]:
    """Recordings, newest first"""
    return list_recordings(settings, service)


@router.get("/{service}/{life}/requests", operation_id="list_requests")
def requests(
    service: Service,
    life: Life,
    settings: Configured,
    _caller: Reader,
    params: Annotated[RequestsParams, Query()],
) -> RequestPage:
    """The requests of one life, in the order in which they began, a page at a time"""
    return list_requests(settings, service, life, params)


@router.get("/{service}/{life}/requests/{number}", operation_id="show_request")
def request(service: Service, life: Life, number: Number, settings: Configured, caller: Reader) -> Proxied:
    """One request and its answer, with bodies for the scope memory; secrets are masked"""
    found = show_request(settings, service, life, number)
    return found if Scope.MEMORY in caller.scopes else request_without_bodies(found)

"""Who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from relive.server.audit import Audit, AuditPage
from relive.server.routers.provided import Administrator

__all__ = ["router"]

router = APIRouter(prefix="/audit", tags=["audit"])


@router.get("", operation_id="read_audit")
def listed(
    request: Request,
    _caller: Administrator,
    after: Annotated[int | None, Query(ge=1, le=1 << 53, description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> AuditPage:
    """The audit log, newest first"""
    audit: Audit = request.app.state.audit
    return audit.page(after=after, limit=limit)

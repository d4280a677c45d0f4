"""Services that run under Relive, and what a commit of any process would meet."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from relive.check.report import CheckReport
from relive.operations.checking import CHECK, CheckParams
from relive.operations.progress import Silent
from relive.operations.targets import RunningTarget, list_targets
from relive.server.routers.provided import Configured, Reader, performed

__all__ = ["router"]

router = APIRouter(prefix="/targets", tags=["targets"])


@router.get("", operation_id="list_targets")
def listed(settings: Configured, _caller: Reader) -> list[RunningTarget]:
    """What runs and can be committed, oldest first, and what of its protection does not work"""
    return list_targets(settings, Silent())


@router.get("/check", operation_id="check_target")
def checked(
    settings: Configured,
    _caller: Reader,
    target: Annotated[
        str, Query(description="pid:NUMBER, a capsule's name, podman:NAME or docker:NAME", max_length=512)
    ],
) -> CheckReport:
    """Look whether a target can be committed, what would be lost, and what it costs, without touching it"""
    return performed(CHECK, settings, CheckParams(target=target))

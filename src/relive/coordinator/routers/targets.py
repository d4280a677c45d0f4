"""Services that run under Relive."""

from __future__ import annotations

from fastapi import APIRouter

from relive.coordinator.routers.provided import Configured, Reader
from relive.operations.progress import Silent
from relive.operations.targets import Target, list_targets

__all__ = ["router"]

router = APIRouter(prefix="/targets", tags=["targets"])


@router.get("", operation_id="list_targets")
def listed(settings: Configured, _caller: Reader) -> list[Target]:
    """What runs and can be committed, oldest first"""
    return list_targets(settings, Silent())

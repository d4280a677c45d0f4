"""The store as a whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends

from relive.operations.progress import Silent
from relive.operations.storage import (
    STATS,
    VERIFY,
    Garbage,
    GcParams,
    StatsParams,
    StorageStats,
    VerifyParams,
    gc,
)
from relive.server.routers.provided import (
    TASK_ANSWER,
    Configured,
    Operator,
    Reader,
    Submitted,
    performed,
)
from relive.server.task import Task

__all__ = ["router"]

router = APIRouter(prefix="/store", tags=["store"])


@router.get("/stats", operation_id="store_stats")
def stats(settings: Configured, _caller: Reader) -> StorageStats:
    """How much commits bring back, what they take, and what takes the room"""
    return performed(STATS, settings, StatsParams())


@router.get("/garbage", operation_id="foresee_gc")
def garbage(settings: Configured, _caller: Reader) -> Garbage:
    """What `relive gc` would free now; nothing is changed"""
    return gc(settings, GcParams(dry_run=True), Silent())


@router.post("/verifications", operation_id="verify_store", status_code=202, responses=TASK_ANSWER)
def verified(
    params: Annotated[VerifyParams, Body(examples=[{"data": False}])],
    caller: Operator,
    submitted: Annotated[Submitted, Depends()],
) -> Task:
    """Check signatures, hashes, and that all is there that commits need"""
    return submitted(VERIFY.name, params, caller, "store")

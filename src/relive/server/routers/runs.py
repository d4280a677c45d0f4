"""Runs: replays and reproductions, and their verdicts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query
from pydantic import Field

from relive.operations.replays import REPLAY, ReplayParams
from relive.operations.reproductions import REPRODUCE, FreshParams, ReproduceParams
from relive.operations.runs import (
    RunDetail,
    RunPage,
    RunsParams,
    RunVerdict,
    list_runs,
    show_run,
    verdicts_of,
)
from relive.server.authentication import refuse_without
from relive.server.credentials import Scope
from relive.server.routers.provided import (
    TASK_ANSWER,
    Configured,
    MemoryReader,
    Operator,
    Reader,
    Submitted,
)
from relive.server.task import Task

__all__ = ["router"]

router = APIRouter(tags=["runs"])
Number = Annotated[int, Path(ge=1, le=(1 << 53) - 1, description="Number of the run")]


@router.get("/runs", operation_id="list_runs")
def listed(settings: Configured, _caller: Reader, params: Annotated[RunsParams, Query()]) -> RunPage:
    """Replays and reproductions that were done, whoever asked for them, newest first"""
    return list_runs(settings, params)


@router.post("/runs", operation_id="replay", status_code=202, responses=TASK_ANSWER)
def replayed(
    params: Annotated[ReplayParams, Body(examples=[{"what": "1", "times": 5}])],
    caller: Operator,
    submitted: Annotated[Submitted, Depends()],
) -> Task:
    """Restore the commit before a failure, send the recorded requests again, and judge

    To `set` or `write` something needs the scope `memory`, too.
    """
    if params.set or params.write:
        refuse_without(caller, Scope.MEMORY)
    return submitted(REPLAY.name, params, caller, params.what)


class ReproductionParams(FreshParams):
    """What is reproduced. Its command can read what its user can read on the host: the route needs memory, too."""

    incident: int = Field(ge=1, le=(1 << 53) - 1, description="Number of the incident")
    env: list[str] = Field(
        default=[],
        max_length=1000,
        description="NAME=VALUE, over the recorded environment; kept with the task",
    )
    times: int = Field(default=1, ge=1, le=1000, description="How often, each in a fresh process")
    limit: float = Field(
        default=30.0,
        ge=0.1,
        le=3600,
        description="Seconds until the service listens, and again until it has answered",
    )


@router.post("/reproductions", operation_id="reproduce", status_code=202, responses=TASK_ANSWER)
def reproduced(
    params: Annotated[ReproductionParams, Body(examples=[{"incident": 1}])],
    caller: Operator,
    _reader: MemoryReader,
    submitted: Annotated[Submitted, Depends()],
) -> Task:
    """Without any commit: start the service afresh in a sandbox, send the failed request, and judge"""
    full = ReproduceParams(**{**dict(params), "incident": str(params.incident)})
    return submitted(REPRODUCE.name, full, caller, f"incident {params.incident}")


@router.get("/runs/{number}", operation_id="show_run")
def shown(number: Number, settings: Configured, _caller: MemoryReader) -> RunDetail:
    """One replay or reproduction in full: what was answered and logged, as it was"""
    return show_run(settings, number)


@router.get("/runs/{number}/verdicts", operation_id="list_verdicts")
def verdicts(number: Number, settings: Configured, caller: Reader) -> list[RunVerdict]:
    """What each of its runs showed; without the scope memory only of which kind the first difference is, and where"""
    found = verdicts_of(settings, number)
    if Scope.MEMORY in caller.scopes:
        return found
    return [one.outlined() for one in found]

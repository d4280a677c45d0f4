"""Fixtures: small databases in which an incident's queries give what they gave."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path
from fastapi.responses import FileResponse

from relive.errors import NotFound
from relive.operations.fixtures import FIXTURE
from relive.server.routers.provided import (
    TASK_ANSWER,
    Configured,
    MemoryReader,
    Operator,
    Submitted,
    TasksDep,
)
from relive.server.task import Task
from relive.server.task_kinds import FixtureTask, fixture_directory

__all__ = ["router"]

router = APIRouter(prefix="/fixtures", tags=["fixtures"])


@router.post("", operation_id="make_fixture", status_code=202, responses=TASK_ANSWER)
def made(
    params: Annotated[FixtureTask, Body(examples=[{"incident": 1}])],
    caller: Operator,
    submitted: Annotated[Submitted, Depends()],
) -> Task:
    """Make a fixture of an incident's queries and rows; its files lie below /fixtures/TASK"""
    return submitted(FIXTURE.name, params, caller, f"incident {params.incident}")


@router.get(
    "/{task}/{name}",
    operation_id="read_fixture",
    response_class=FileResponse,
    responses={200: {"content": {"application/octet-stream": {}}, "description": "The file"}},
)
def file(
    task: Annotated[str, Path(max_length=100)],
    name: Annotated[
        str, Path(max_length=200, description="One of `files` of the task's result, without directory")
    ],
    settings: Configured,
    tasks: TasksDep,
    _caller: MemoryReader,
) -> FileResponse:
    """A file of a fixture: its rules, its database"""
    known = tasks.get(task)  # so the id is no path
    files = {path.name: path for path in fixture_directory(settings, known.id).glob("*") if path.is_file()}
    if name not in files:
        raise NotFound(
            f"the fixture of task {task} has no file {name!r}", cause=f"it has {', '.join(sorted(files))}"
        )
    return FileResponse(files[name], media_type="application/octet-stream", filename=name)

"""Tasks: what takes long, how far it is, and how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from relive.operations.catalogue import OPERATIONS
from relive.operations.operation import Route
from relive.operations.replays import REPLAY
from relive.operations.reproductions import REPRODUCE
from relive.server.audit import note_for_audit
from relive.server.authentication import Caller
from relive.server.credentials import Scope
from relive.server.errors import JSON_ERROR_RESPONSES
from relive.server.routers.provided import Operator, Reader, TasksDep
from relive.server.task import Task, TaskPage, TaskState

__all__ = ["router"]

router = APIRouter(prefix="/tasks", tags=["tasks"])
Id = Annotated[str, Path(description="The task's id", max_length=100)]


# By a caller with rights: else who may not ask would be told which ids there are.
def _known(task: Id, tasks: TasksDep, _caller: Reader) -> str:
    return tasks.get(task).id


# Asked before the stream begins, so that an unknown task is a 404.
Known = Annotated[str, Depends(_known)]


# Their results hold what services answered, logged and had in memory, their inputs what environment they are given.
_HOLD_MEMORY = frozenset({REPLAY.name, REPRODUCE.name}) | {
    name
    for name, one in OPERATIONS.items()
    if isinstance(one.faces.rest, Route) and Scope.MEMORY in one.faces.rest.scopes
}
# Their inputs and results name files and remotes of the host.
_OF_THE_HOST = frozenset(
    name
    for name, one in OPERATIONS.items()
    if isinstance(one.faces.rest, Route) and Scope.HOST in one.faces.rest.scopes
)


def _sees(caller: Caller, kind: str) -> bool:
    """They may read what was asked and what came of it."""
    return (Scope.MEMORY in caller.scopes or kind not in _HOLD_MEMORY) and (
        Scope.HOST in caller.scopes or kind not in _OF_THE_HOST
    )


def _for(caller: Caller, task: Task) -> Task:
    """Without what the caller may not read; a replay's verdicts are at /runs/NUMBER/verdicts."""
    if _sees(caller, task.kind):
        return task
    return task.model_copy(update={"input": {}, "result": None})


@router.get("", operation_id="list_tasks")
def listed(
    tasks: TasksDep,
    caller: Reader,
    after: Annotated[str | None, Query(max_length=200, description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    state: TaskState | None = None,
    kind: Annotated[str | None, Query(max_length=100)] = None,
) -> TaskPage:
    """Tasks, the newest first; of replays and reproductions input and result need the scope memory"""
    page = tasks.page(after=after, limit=limit, state=state, kind=kind)
    return page.model_copy(update={"tasks": [_for(caller, one) for one in page.tasks]})


@router.get("/{task}", operation_id="show_task")
def shown(task: Id, tasks: TasksDep, caller: Reader) -> Task:
    """One task, with its result or error when it has ended; of a replay or reproduction these need the scope memory"""
    return _for(caller, tasks.get(task))


@router.delete("/{task}", operation_id="cancel_task")
def cancelled(task: Id, tasks: TasksDep, caller: Operator, request: Request) -> Task:
    """End a task; one that runs takes back what it has begun"""
    note_for_audit(request.scope, task=task)
    return _for(caller, tasks.cancel(task))


@router.get(
    "/{task}/events",
    operation_id="follow_task",
    response_class=EventSourceResponse,
    responses=JSON_ERROR_RESPONSES,
)
async def events(
    task: Known,
    tasks: TasksDep,
    caller: Reader,
    last_event_id: Annotated[
        int | None,
        Header(ge=0, le=(1 << 60), description="Go on after this event, as browsers do by themselves"),
    ] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: begun, progress, told, ended; the last one has the result or the error"""
    is_whole = _sees(caller, tasks.get(task).kind)
    async for one in tasks.events(task, last_event_id or 0):
        data = one.data if is_whole else {**one.data, "result": None} if "result" in one.data else one.data
        yield ServerSentEvent(id=str(one.id), event=one.event.value, data=data)

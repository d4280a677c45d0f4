"""What every route is given: the settings, the tasks, and who asks, from the application's state."""

from __future__ import annotations

import threading
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request, Response
from pydantic import BaseModel

from relive.config import Settings
from relive.errors import ServerBusy
from relive.operations.operation import Operation, Params
from relive.operations.subprocess_runner import perform_apart
from relive.server.audit import note_for_audit
from relive.server.authentication import Caller, needs
from relive.server.credentials import Scope
from relive.server.task import Task
from relive.server.tasks import Tasks

__all__ = [
    "TASK_ANSWER",
    "Administrator",
    "Configured",
    "MemoryReader",
    "Operator",
    "Reader",
    "Submitted",
    "TasksDep",
    "performed",
]

Reader = Annotated[Caller, Depends(needs(Scope.READ))]
Operator = Annotated[Caller, Depends(needs(Scope.OPERATE))]
MemoryReader = Annotated[Caller, Depends(needs(Scope.MEMORY))]
Administrator = Annotated[Caller, Depends(needs(Scope.ADMIN))]


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _tasks(request: Request) -> Tasks:
    tasks: Tasks = request.app.state.tasks
    return tasks


Configured = Annotated[Settings, Depends(_settings)]
TasksDep = Annotated[Tasks, Depends(_tasks)]

W = TypeVar("W", bound=Params)
R = TypeVar("R", bound=BaseModel)
# Fewer than the server has threads for requests (40): the others go on being answered.
_AT_ONCE = threading.BoundedSemaphore(8)

TASK_ANSWER: dict[int | str, dict[str, Any]] = {
    202: {
        "model": Task,
        "description": "It is taken on; `Location` is where it can be asked about, `/events` below it tells how far it is",
    }
}


class Submitted:
    """Takes tasks on for one request."""

    def __init__(
        self,
        request: Request,
        response: Response,
        tasks: TasksDep,
        idempotency_key: Annotated[
            str | None,
            Header(
                min_length=1,
                max_length=200,
                description="The same key with the same body gives the task that it gave before, and does nothing twice",
            ),
        ] = None,
    ) -> None:
        self._scope, self._response, self._tasks, self._key = (
            request.scope,
            response,
            tasks,
            idempotency_key,
        )

    def __call__(self, kind: str, params: BaseModel, caller: Caller, target: str) -> Task:
        """Take it on, durable on return; ``target`` is what the audit log names. Raises as ``Tasks.submit`` does."""
        task = self._tasks.submit(kind, params, by=caller.who, key=self._key)
        note_for_audit(self._scope, target=target, task=task.id)
        self._response.headers["Location"] = f"/tasks/{task.id}"
        return task


def performed(operation: Operation[W, R], settings: Settings, params: W) -> R:
    """Have it done while the request waits; raises ServerBusy where too many are, and what the operation raises."""
    if not _AT_ONCE.acquire(blocking=False):
        raise ServerBusy(
            f"too many are waiting for what {operation.name} takes",
            cause="each takes a process of its own",
            remedy="ask again in some seconds",
        )
    try:
        return perform_apart(operation, settings, params)
    finally:
        _AT_ONCE.release()

"""A task as a value: what was asked of the server, how far it is, and how it ended.

Times are nanoseconds of the wall clock since the epoch. Nothing here knows where tasks are kept or what runs them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NewType

from relive.model.value import Value

__all__ = [
    "Task",
    "TaskEvent",
    "TaskEventKind",
    "TaskFailure",
    "TaskId",
    "TaskPage",
    "TaskProgress",
    "TaskState",
]

TaskId = NewType("TaskId", str)  # 32 hexadecimal digits, random; made by the task store only


class TaskState(StrEnum):
    """Where a task is in its life; the last three are for good."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Nothing more happens to the task."""
        return self in {TaskState.SUCCEEDED, TaskState.FAILED, TaskState.CANCELLED}


class TaskFailure(Value):
    """Why a task failed, in the one shape of errors (``ReliveError.as_json``)."""

    code: str
    message: str
    cause: str | None
    remedy: str | None


class TaskProgress(Value):
    """How far it is: ``done`` of ``total`` steps or bytes (``unit``) of ``what``."""

    what: str
    done: int
    total: int
    unit: str


class Task(Value):
    """One task.

    Attributes:
        by: who asked for it; key: the idempotency key that he gave, None without.
        input: as the model of its kind gives it; result: likewise, None until it has succeeded.
        error: None but for a failed or cancelled one.
        begun_wall_ns, ended_wall_ns: None until then; begun is the first time.
        attempts: how often it was begun; more than once if its server ended meanwhile.
        cancelling: it was cancelled and has not ended yet.
        progress: what it said last, None if it said nothing.
    """

    id: TaskId
    kind: str
    state: TaskState
    by: str
    key: str | None
    input: dict[str, Any]
    result: dict[str, Any] | None
    error: TaskFailure | None
    created_wall_ns: int
    begun_wall_ns: int | None
    ended_wall_ns: int | None
    attempts: int
    cancelling: bool
    progress: TaskProgress | None


class TaskPage(Value):
    """Some tasks, the newest first.

    Attributes:
        next: cursor for the page that follows, None if there is none. New tasks do not shift it.
    """

    tasks: list[Task]
    next: str | None


class TaskEventKind(StrEnum):
    """What is told of a task while it goes on."""

    BEGUN = "begun"
    PROGRESS = "progress"
    TOLD = "told"
    ENDED = "ended"


class TaskEvent(Value):
    """Something that happened to a task.

    Attributes:
        id: grows from event to event; where a reader goes on that was interrupted.
        data: begun: {"attempt": n}; progress: the fields of ``TaskProgress``; told: {"text": sentence};
            ended: {"state": ..., "result": {...} or None, "error": {code, message, cause, remedy} or None}.
    """

    id: int
    task: TaskId
    event: TaskEventKind
    wall_ns: int
    data: dict[str, Any]

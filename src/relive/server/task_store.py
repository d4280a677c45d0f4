"""What is known of tasks: an SQLite file that every server process on one ``$RELIVE_HOME`` reads and writes.

It is the truth about tasks; what hands them to threads (``task_engine``) may forget and repeat itself. Tables:

* ``tasks``: one row a task. ``attempt`` counts how often it was begun, and *fences*: who began an earlier attempt can write
  nothing any more (``Superseded``), should it have been declared dead and be alive.
* ``effects``: one row for each step that was announced, with its value once it is done.
* ``events``: what readers are told; of progress only the newest row of a task.
* ``executors``: one row for each server process that runs tasks (see ``executors``).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relive.errors import (
    KeyReused,
    TasksFull,
    TaskUnknown,
    UsageError,
)
from relive.server.database import SqliteFile
from relive.server.task import (
    Task,
    TaskEvent,
    TaskEventKind,
    TaskFailure,
    TaskId,
    TaskPage,
    TaskProgress,
    TaskState,
)

__all__ = ["Beginning", "ExecutorRow", "News", "Superseded", "TaskStore"]

_ID_MOST = (1 << 63) - 1  # SQLite's
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, state TEXT NOT NULL,
    asked_by TEXT NOT NULL, key TEXT, input TEXT NOT NULL, result TEXT, error TEXT, created_ns INTEGER NOT NULL,
    begun_ns INTEGER, ended_ns INTEGER, attempt INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0,
    cancelling INTEGER NOT NULL DEFAULT 0, handed INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS tasks_by_key ON tasks (asked_by, key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS tasks_by_state ON tasks (state, number);
CREATE INDEX IF NOT EXISTS tasks_by_kind ON tasks (kind, number);
CREATE TABLE IF NOT EXISTS effects (
    task TEXT NOT NULL, step TEXT NOT NULL, value TEXT, PRIMARY KEY (task, step)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, task TEXT NOT NULL, event TEXT NOT NULL, wall_ns INTEGER NOT NULL, data TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_by_task ON events (task, id);
CREATE TABLE IF NOT EXISTS executors (
    id TEXT PRIMARY KEY, boot TEXT NOT NULL, namespace INTEGER NOT NULL, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL,
    beat_ns INTEGER NOT NULL
);
"""
_FINAL = tuple(state.value for state in TaskState if state.is_final)
_TASK = (
    "SELECT t.*, (SELECT data FROM events e WHERE e.task = t.id AND e.event = 'progress' ORDER BY e.id DESC LIMIT 1)"
    " AS progress FROM tasks t"
)


class Superseded(Exception):
    """This attempt is not the task's newest one (any more): it is somebody else's now, and nothing was written."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """An attempt that begins.

    Attributes:
        deaths: how many earlier attempts ended without a word.
        cancelling: it was cancelled before; only what earlier attempts left is to be ended.
    """

    task: Task
    attempt: int
    deaths: int
    cancelling: bool


@dataclass(frozen=True, slots=True)
class News:
    """What an attempt has to tell since it told something last."""

    task: TaskId
    attempt: int
    progress: TaskProgress | None
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExecutorRow:
    """A server process; ``beat_ns`` is CLOCK_MONOTONIC of its host at its last sign of life."""

    id: str
    boot: str
    namespace: int
    pid: int
    start_ticks: int
    beat_ns: int

    def alive(self) -> ExecutorRow:
        """The same with a sign of life now."""
        return replace(self, beat_ns=time.monotonic_ns())


class TaskStore:
    """Opens ``directory/tasks.sqlite``; all methods may be called from any thread. Those that only read wait for no writer.

    They raise DiskFull, StoreBusy or StoreError where the file cannot be read or written; then nothing was written.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / "tasks.sqlite"
        # What was promised is on the disk before the promise; news of how far a task is need not survive a power cut.
        self._promised = SqliteFile(path, _SCHEMA)
        try:
            self._news = SqliteFile(path, _SCHEMA, is_durable=False)
        except BaseException:
            self._promised.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._promised.close()
        self._news.close()

    # What faces ask for.

    def submit(
        self, kind: str, given: dict[str, Any], *, by: str, key: str | None, waiting_most: int
    ) -> tuple[Task, bool]:
        """Take a task on: (the task, whether it is new); durable on return.

        A key that ``by`` gave before, with the same kind and input, gives the task that it made then.

        Raises:
            KeyReused: the key was given with another kind or input.
            TasksFull: ``waiting_most`` tasks wait already.
        """
        text = _json(given)
        with self._promised.writing() as database:
            if key is not None:
                known = database.execute(f"{_TASK} WHERE asked_by = ? AND key = ?", (by, key)).fetchone()
                if known is not None:
                    return _same(known, kind, text), False
            (waiting,) = database.execute(
                "SELECT count(*) FROM tasks WHERE state = ?", (TaskState.QUEUED,)
            ).fetchone()
            if waiting >= waiting_most:
                raise TasksFull(
                    f"the task {kind} was not taken on",
                    cause=f"{waiting} tasks wait for their turn already",
                    remedy="try again when some of them are done, or raise `tasks_waiting`",
                )
            task_id = TaskId(uuid.uuid4().hex)
            database.execute(
                "INSERT INTO tasks (id, kind, state, asked_by, key, input, created_ns) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (task_id, kind, TaskState.QUEUED, by, key, text, time.time_ns()),
            )
            row = database.execute(f"{_TASK} WHERE id = ?", (task_id,)).fetchone()
        return _task(row), True

    def has_key(self, by: str, key: str) -> bool:
        """``by`` gave the key before, and the task that it made is kept."""
        return bool(self._promised.rows("SELECT 1 FROM tasks WHERE asked_by = ? AND key = ?", by, key))

    def get(self, task_id: str) -> Task:
        """One task; raises TaskUnknown."""
        rows = self._promised.rows(f"{_TASK} WHERE id = ?", _text(task_id))
        if not rows:
            raise _unknown(task_id)
        return _task(rows[0])

    def page(self, *, after: str | None, limit: int, state: TaskState | None, kind: str | None) -> TaskPage:
        """At most ``limit`` tasks, the newest first; raises UsageError where ``after`` is no cursor."""
        conditions, values = [], list[object]()
        if after is not None:
            conditions.append("number < ?")
            values.append(_cursor(after))
        if state is not None:
            conditions.append("state = ?")
            values.append(state)
        if kind is not None:
            conditions.append("kind = ?")
            values.append(_text(kind))
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = self._promised.rows(f"{_TASK} {where} ORDER BY number DESC LIMIT ?", *values, limit + 1)
        shown = rows[:limit]
        return TaskPage(
            tasks=[_task(row) for row in shown], next=str(shown[-1]["number"]) if len(rows) > limit else None
        )

    def has_ended(self, task_id: str) -> bool:
        """Nothing more happens to the task; raises TaskUnknown."""
        rows = self._promised.rows("SELECT state FROM tasks WHERE id = ?", _text(task_id))
        if not rows:
            raise _unknown(task_id)
        return TaskState(rows[0]["state"]).is_final

    def events_after(self, task_id: str, after: int) -> list[TaskEvent]:
        """What happened to a task after the event ``after``, in order; nothing for a task that there is none of."""
        rows = self._promised.rows(
            "SELECT * FROM events WHERE task = ? AND id > ? ORDER BY id",
            _text(task_id),
            min(after, _ID_MOST),
        )
        return [
            TaskEvent(
                id=row["id"],
                task=TaskId(row["task"]),
                event=TaskEventKind(row["event"]),
                wall_ns=row["wall_ns"],
                data=json.loads(row["data"]),
            )
            for row in rows
        ]

    def cancel(self, task_id: str) -> Task:
        """End a task that waits, ask one that runs to end; one that has ended is left as it is. Raises TaskUnknown."""
        with self._promised.writing() as database:
            row = database.execute("SELECT * FROM tasks WHERE id = ?", (_text(task_id),)).fetchone()
            if row is None:
                raise _unknown(task_id)
            if not TaskState(row["state"]).is_final:
                database.execute("UPDATE tasks SET cancelling = 1 WHERE id = ?", (task_id,))
                if row["attempt"] == 0:  # otherwise it may have left something, which has to be ended first
                    _end(
                        database, TaskId(task_id), TaskState.CANCELLED, None, cancelled(task_id, row["kind"])
                    )
            found = database.execute(f"{_TASK} WHERE id = ?", (task_id,)).fetchone()
        return _task(found)

    # What those who run tasks write.

    def begin(self, task_id: TaskId) -> Beginning | None:
        """Begin an attempt, which supersedes all before; None if the task has ended or there is none."""
        with self._promised.writing() as database:
            row = database.execute(f"{_TASK} WHERE id = ?", (task_id,)).fetchone()
            if row is None or TaskState(row["state"]).is_final:
                return None
            attempt = row["attempt"] + 1
            # One that runs and is begun again was left without a word; one that was handed back waits.
            deaths = row["deaths"] + (row["state"] == TaskState.RUNNING)
            database.execute(
                "UPDATE tasks SET state = ?, attempt = ?, deaths = ?, begun_ns = coalesce(begun_ns, ?) WHERE id = ?",
                (TaskState.RUNNING, attempt, deaths, time.time_ns(), task_id),
            )
            _insert_event(database, task_id, TaskEventKind.BEGUN, {"attempt": attempt})
            begun = database.execute(f"{_TASK} WHERE id = ?", (task_id,)).fetchone()
        return Beginning(_task(begun), attempt, deaths, bool(begun["cancelling"]))

    def hand_back(self, task_id: TaskId, attempt: int) -> None:
        """Let a task that runs wait again, for another process or this one's successor; raises Superseded."""
        with self._promised.writing() as database:
            _check_fence(database, task_id, attempt)
            database.execute("UPDATE tasks SET state = ? WHERE id = ?", (TaskState.QUEUED, task_id))

    def announce(self, task_id: TaskId, attempt: int, step: str) -> tuple[bool, str | None]:
        """Say that a step is about to be done: (it was announced before, the JSON of its value if it is done).

        Durable on return. Raises Superseded.
        """
        with self._promised.writing() as database:
            _check_fence(database, task_id, attempt)
            row = database.execute(
                "SELECT value FROM effects WHERE task = ? AND step = ?", (task_id, step)
            ).fetchone()
            if row is not None:
                return True, row["value"]
            database.execute("INSERT INTO effects VALUES (?, ?, NULL)", (task_id, step))
        return False, None

    def effect(self, task_id: TaskId, step: str) -> str | None:
        """The JSON of what was noted as a step's value; None if nothing was."""
        rows = self._promised.rows("SELECT value FROM effects WHERE task = ? AND step = ?", task_id, step)
        return rows[0]["value"] if rows else None

    def note_done(self, task_id: TaskId, attempt: int, step: str, value: str) -> None:
        """Note the value of a step that is done; durable on return. Raises Superseded."""
        with self._promised.writing() as database:
            _check_fence(database, task_id, attempt)
            database.execute("INSERT OR REPLACE INTO effects VALUES (?, ?, ?)", (task_id, step, value))

    def end(
        self, news: News, state: TaskState, *, result: dict[str, Any] | None, failure: TaskFailure | None
    ) -> None:
        """A task's end, with what it had still to tell; durable on return. Raises Superseded."""
        with self._promised.writing() as database:
            _check_fence(database, news.task, news.attempt)
            _insert_news(database, news)
            _end(database, news.task, state, result, failure)

    def publish(self, news: Iterable[News]) -> None:
        """Progress and sentences of attempts that run, in one transaction; those of superseded ones are dropped."""
        with self._news.writing() as database:
            for one in news:
                with contextlib.suppress(Superseded):
                    _check_fence(database, one.task, one.attempt)
                    _insert_news(database, one)

    def cancelling_among(self, task_ids: Iterable[TaskId]) -> set[TaskId]:
        """Those that are to end."""
        marks, values = _marks(task_ids)
        return {
            TaskId(row["id"])
            for row in self._promised.rows(
                f"SELECT id FROM tasks WHERE cancelling = 1 AND id IN ({marks})", *values
            )
        }

    # What hands tasks out.

    def unhanded(self) -> list[TaskId]:
        """Tasks that have not ended and are to be handed out, the oldest first."""
        return self._not_ended(handed=False)

    def set_handed(self, task_ids: Iterable[TaskId], *, handed: bool) -> None:
        """Note whether they were handed out."""
        marks, values = _marks(task_ids)
        with self._promised.writing() as database:
            database.execute(f"UPDATE tasks SET handed = {int(handed)} WHERE id IN ({marks})", values)

    def open_tasks(self) -> list[TaskId]:
        """Tasks that have not ended and were handed out, the oldest first."""
        return self._not_ended(handed=True)

    def _not_ended(self, *, handed: bool) -> list[TaskId]:
        rows = self._promised.rows(
            "SELECT id FROM tasks WHERE state IN (?, ?) AND handed = ? ORDER BY number",
            TaskState.QUEUED,
            TaskState.RUNNING,
            handed,
        )
        return [TaskId(row["id"]) for row in rows]

    def ended_among(self, task_ids: Iterable[TaskId]) -> set[TaskId]:
        """Those that have ended, or that there are none of."""
        wanted = set(task_ids)
        marks, values = _marks(wanted)
        final = ", ".join("?" * len(_FINAL))
        rows = self._promised.rows(
            f"SELECT id FROM tasks WHERE id IN ({marks}) AND state NOT IN ({final})", *values, *_FINAL
        )
        return wanted - {TaskId(row["id"]) for row in rows}

    def forget_old(self, keep: int) -> int:
        """Forget tasks that have ended but for the newest ``keep``, with their keys; returns how many."""
        final = ", ".join("?" * len(_FINAL))
        old = f"SELECT id FROM tasks WHERE state IN ({final}) ORDER BY number DESC LIMIT -1 OFFSET ?"
        ids = [(row["id"],) for row in self._promised.rows(old, *_FINAL, keep)]
        if not ids:
            return 0
        with self._promised.writing() as database:
            for table, column in (("events", "task"), ("effects", "task"), ("tasks", "id")):
                database.executemany(f"DELETE FROM {table} WHERE {column} = ?", ids)
        return len(ids)

    # Server processes.

    def beat(self, row: ExecutorRow) -> None:
        """Note a sign of life of a server process."""
        with self._news.writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO executors VALUES (?, ?, ?, ?, ?, ?)",
                (row.id, row.boot, row.namespace, row.pid, row.start_ticks, row.beat_ns),
            )

    def executors(self) -> list[ExecutorRow]:
        """All server processes that were not noted as gone."""
        return [ExecutorRow(*row) for row in self._promised.rows("SELECT * FROM executors")]

    def remove_executor(self, executor: str) -> None:
        """Note that a server process is gone."""
        with self._promised.writing() as database:
            database.execute("DELETE FROM executors WHERE id = ?", (executor,))


def cancelled(task_id: str, kind: str) -> TaskFailure:
    """The error of a task that was cancelled."""
    return TaskFailure(
        code="cancelled",
        message=f"the task {kind} was cancelled",
        cause=f"its id is {task_id}",
        remedy=None,
    )


def _unknown(task_id: str) -> TaskUnknown:
    return TaskUnknown(
        f"there is no task {task_id!r}",
        cause="the server forgets the oldest of those that have ended",
        remedy="list the tasks that there are",
    )


def _same(row: sqlite3.Row, kind: str, text: str) -> Task:
    if row["kind"] != kind or row["input"] != text:
        raise KeyReused(
            f"the idempotency key {row['key']!r} was given before, with another request",
            cause=f"it belongs to the task {row['id']}, {row['kind']}",
            remedy="send the same request again, or use a new key",
        )
    return _task(row)


def _check_fence(database: sqlite3.Connection, task_id: TaskId, attempt: int) -> None:
    row = database.execute("SELECT attempt, state FROM tasks WHERE id = ?", (task_id,)).fetchone()
    if row is None or row["attempt"] != attempt or row["state"] != TaskState.RUNNING:
        raise Superseded(f"attempt {attempt} of {task_id}")


def _insert_event(
    database: sqlite3.Connection, task_id: TaskId, event: TaskEventKind, data: dict[str, Any]
) -> None:
    database.execute(
        "INSERT INTO events (task, event, wall_ns, data) VALUES (?, ?, ?, ?)",
        (task_id, event, time.time_ns(), _json(data)),
    )


def _insert_news(database: sqlite3.Connection, news: News) -> None:
    for text in news.messages:
        _insert_event(database, news.task, TaskEventKind.TOLD, {"text": text})
    if news.progress is not None:
        # Rows of a long task would grow without end, and nobody wants to know how far it once was.
        database.execute(
            "DELETE FROM events WHERE task = ? AND event = ?", (news.task, TaskEventKind.PROGRESS)
        )
        _insert_event(database, news.task, TaskEventKind.PROGRESS, news.progress.model_dump())


def _end(
    database: sqlite3.Connection,
    task_id: TaskId,
    state: TaskState,
    result: dict[str, Any] | None,
    failure: TaskFailure | None,
) -> None:
    error = failure.model_dump() if failure is not None else None
    database.execute(
        "UPDATE tasks SET state = ?, result = ?, error = ?, ended_ns = ? WHERE id = ?",
        (state, _json_or_null(result), _json_or_null(error), time.time_ns(), task_id),
    )
    _insert_event(
        database, task_id, TaskEventKind.ENDED, {"state": state.value, "result": result, "error": error}
    )


def _task(row: sqlite3.Row) -> Task:
    state = TaskState(row["state"])
    return Task(
        id=TaskId(row["id"]),
        kind=row["kind"],
        state=state,
        by=row["asked_by"],
        key=row["key"],
        input=json.loads(row["input"]),
        result=json.loads(row["result"]) if row["result"] is not None else None,
        error=TaskFailure(**json.loads(row["error"])) if row["error"] is not None else None,
        created_wall_ns=row["created_ns"],
        begun_wall_ns=row["begun_ns"],
        ended_wall_ns=row["ended_ns"],
        attempts=row["attempt"],
        cancelling=bool(row["cancelling"]) and not state.is_final,
        progress=TaskProgress(**json.loads(row["progress"])) if row["progress"] is not None else None,
    )


def _json(value: object) -> str:
    # Canonical, since inputs are compared as text; ASCII, so that what is no Unicode (a stray byte of a path) can be kept.
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _json_or_null(value: object) -> str | None:
    return _json(value) if value is not None else None


def _marks(task_ids: Iterable[TaskId]) -> tuple[str, list[TaskId]]:
    values = list(task_ids)
    return ", ".join("?" * len(values)), values


def _text(given: str) -> str:
    # What is no Unicode is nobody's id, and SQLite would refuse it.
    return given.encode(errors="replace").decode()


def _cursor(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError(
            f"{text!r} is no cursor", remedy="pass on what `next` of the page before said, unchanged"
        )
    return int(text)

"""What hands tasks to threads and keeps to the limits: DBOS on an SQLite file, behind the few calls that are made of it.

A task is a DBOS workflow of the same id, without DBOS steps: ours are known by key (``task_context``), DBOS's by their number,
which code of another version shifts. What a task is and how it ended says ``task_store``; should this file be lost, tasks are
handed out anew.

DBOS is imported when an engine is started, which takes a second. All methods block, and must not be called from an event loop.
"""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from relive.server.task import TaskId
from relive.store.journal_mode import write_ahead

if TYPE_CHECKING:
    from dbos import DBOS, WorkflowHandle

__all__ = ["TaskEngine"]

_POLL = 0.05  # [s] between two looks for waiting tasks
_APPLICATION = "relive"
_QUEUE = "tasks"
_WORKFLOW = "relive-task"
# Part of each workflow, and only a server of the same takes it up. Pinned, since DBOS makes it from its own version and our
# code's text otherwise: after an update nobody would go on with what the old server had begun.
_APPLICATION_VERSION = "relive-tasks-1"
_FINAL = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
_AT_ONCE = 500
_BUSY_MS = 30_000


class TaskEngine:
    """One for each process, as DBOS is.

    Args:
        executor: names this process; unique, since what a name left running is begun again when it starts.
        run: is called with the id of a task in a thread of its own; only one call in all processes together, unless that
            process was declared dead. It returns when the task has ended, and raises no Exception.
    """

    def __init__(self, directory: Path, executor: str, run: Callable[[TaskId], None], *, most: int) -> None:
        self._directory = directory
        self._executor = executor
        self._run = run
        self._most = most
        self._dbos: type[DBOS] | None = None
        self._workflow: Callable[[str], None] | None = None

    def start(self) -> None:
        """Begin to hand out tasks."""
        path = self._directory / "dispatch.sqlite"
        _prepare(path)
        _forget_cloud()
        dbos = importlib.import_module("dbos")
        # Its sentences about retries and versions are for its makers; what goes wrong for good is an error.
        logging.getLogger("dbos").setLevel(logging.ERROR)
        self._dbos = dbos.DBOS
        dbos.DBOS(
            config={
                "name": _APPLICATION,
                "system_database_url": f"sqlite:///{path}",
                "application_version": _APPLICATION_VERSION,
                "executor_id": self._executor,
                "enable_otlp": False,
                "log_level": "ERROR",
                "scheduler_polling_interval_sec": 3600.0,  # nothing is scheduled
                # Nobody waits for messages, so it looks at nothing; but a stop waits for it.
                "notification_listener_polling_interval_sec": 0.2,
            }
        )

        def relive_task(task: str) -> None:
            self._run(TaskId(task))

        # How often a task is tried is the store's to count.
        self._workflow = dbos.DBOS.workflow(name=_WORKFLOW, max_recovery_attempts=None)(relive_task)
        self._make_queue(dbos, f"sqlite:///{path}")
        dbos.DBOS.launch()

    def _make_queue(self, dbos: ModuleType, url: str) -> None:
        # Before the launch: a queue that is made later is looked at a second later.
        dbos.DBOS.migrate(url)
        client = dbos.DBOSClient(system_database_url=url)
        try:
            client.register_queue(
                _QUEUE,
                worker_concurrency=self._most,
                global_concurrency=self._most,
                polling_interval_sec=_POLL,
                application_name=_APPLICATION,
            )
        finally:
            client.destroy()

    def stop(self) -> None:
        """Hand out no more; runs that go on are not waited for."""
        if self._dbos is not None:
            self._dbos.destroy(destroy_registry=True)
            self._dbos = None

    def hand_out(self, task: TaskId) -> None:
        """Let a task be run when its turn comes; handing it out again changes nothing."""
        dbos = self._started()
        from dbos import SetWorkflowID  # noqa: PLC0415 - it is there already

        assert self._workflow is not None
        with SetWorkflowID(task):
            handle: WorkflowHandle[None] = dbos.enqueue_workflow(_QUEUE, self._workflow, task)
        del handle

    def withdraw(self, tasks: Collection[TaskId]) -> None:
        """Forget tasks, so that they can be handed out anew, or since they have ended."""
        if tasks:
            self._started().delete_workflows(list(tasks))

    def unknown_among(self, tasks: Collection[TaskId]) -> list[TaskId]:
        """Those that are neither running nor waiting here, as far as is known."""
        known = self._started().list_workflows(workflow_ids=list(tasks), load_input=False, load_output=False)
        alive = {status.workflow_id for status in known if status.status not in _FINAL}
        return [task for task in tasks if task not in alive]

    def running(self) -> list[tuple[TaskId, str]]:
        """(task, executor that took it) of all that are running, or were when their process died."""
        found = self._started().list_workflows(
            status="PENDING", queue_name=_QUEUE, load_input=False, load_output=False
        )
        return [(TaskId(status.workflow_id), status.executor_id or "") for status in found]

    def hand_out_again(self, tasks: Collection[TaskId]) -> None:
        """Let tasks be run that a dead process left; within ``alone()``, since one that runs would be run twice."""
        if tasks:
            self._started().resume_workflows(list(tasks), queue_name=_QUEUE)

    def sweep(self) -> None:
        """Forget what is done; the store keeps it."""
        dbos = self._started()
        while True:
            done = dbos.list_workflows(
                status=_FINAL, queue_name=_QUEUE, limit=_AT_ONCE, load_input=False, load_output=False
            )
            if done:
                dbos.delete_workflows([status.workflow_id for status in done])
            if len(done) < _AT_ONCE:
                return

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no other process is in such a block; a death ends it."""
        descriptor = os.open(self._directory / "dispatch.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    def _started(self) -> type[DBOS]:
        assert self._dbos is not None, "the engine was started"
        return self._dbos


def _prepare(path: Path) -> None:
    """Only its owner reads it; and readers do not wait for writers."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(path, timeout=_BUSY_MS / 1000, isolation_level=None)) as database:
        write_ahead(database)


def _forget_cloud() -> None:
    """Variables by which DBOS would take another database or speak to its makers' servers: none is Relive's to obey."""
    for name in [name for name in os.environ if name.startswith("DBOS_")]:
        del os.environ[name]

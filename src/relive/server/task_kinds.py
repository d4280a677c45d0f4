"""What the server does as tasks: operations, each in a process of its own, and what becomes of them when the server dies.

A process of an operation takes back what it does when its caller is gone (``operations.subprocess_runner``). Before a task is
begun again, that process is waited for, so that never two are at work on one task; if it does not end, it is killed. What it may
have done all the same carries the task's id (``Settings.mark``), in the very file that makes it real, so there is no moment
between the two:

* commit: the name of the capture, in the manifest. The commit that has it is the task's; no other is taken, also while the
  capsule's agent, which outlives the server, is still at it.
* restore, restore-many: the mark in the branch's state. Nobody was told of such a branch: it is stopped, and another is brought to
  life.
* rollback: what comes to life has the mark until it takes the branch's place; done again, the branch is rolled back again.
* replay, reproduce: branches as with restore. Each run is kept under the mark as it ends, and not done again; the whole that
  is kept under it, in the place of its runs, is the task's (``operations.resuming``).
* export: what is kept in the export store under the task's id is the task's.
* fixture: files in a directory named by the task's id; they are written anew.
* verify: changes nothing.
* debug: branches as with restore; it begins anew.
* push, pull, import, retain, gc, repair: done again they find what was done, and do the rest; the result tells of the rest only.
* rotation of the signing key: done again it makes one more key; the one between stays trusted.
* restore as a container: a container that is there already is refused by its name.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field

from relive.config import Settings
from relive.errors import Cancelled, TaskUnknown
from relive.incidents.runs import Runs
from relive.kernel.pidfds import has_ended, send_signal
from relive.kernel.procfs import is_same_process, read_stat
from relive.operations.catalogue import OPERATIONS
from relive.operations.committing import COMMIT
from relive.operations.exports import EXPORT, ContentParams, ExportParams, Format
from relive.operations.fixtures import FIXTURE, Database, FixtureMade, FixtureParams
from relive.operations.named import look_up_incident
from relive.operations.operation import Operation, Params, Result, Route
from relive.operations.replays import REPLAY
from relive.operations.reproductions import REPRODUCE
from relive.operations.restoring import RESTORE
from relive.operations.restoring_many import RESTORE_MANY
from relive.operations.storage import VERIFY
from relive.operations.subprocess_runner import perform_apart
from relive.sandbox.branch import list_branches
from relive.server.export_shelf import ExportStore
from relive.server.signed_urls import LONGEST
from relive.server.task_context import TaskAttempt, TaskKind, never_done
from relive.server.tasks import Tasks

__all__ = [
    "ExportDone",
    "ExportTask",
    "FixtureTask",
    "fixture_directory",
    "server_kinds",
    "sweep_fixtures",
    "sweep_unfinished",
]

W = TypeVar("W", bound=Params)
R = TypeVar("R", bound=BaseModel)
_PATIENCE = 30.0  # [s] for an operation to take back what it did, when its server has died
_PROCESS = "process"


class ExportTask(ContentParams):
    """What is exported, to a file of the server's."""

    lifetime: int = Field(default=86_400, ge=1, le=LONGEST, description="Seconds for which it is kept")


class ExportDone(Result):
    """An export that is kept; ``expires`` in Unix seconds."""

    export: str
    name: str
    bytes: int
    expires: int


class FixtureTask(Params):
    """Of which incident a fixture is made, in a directory of the server's; see ``FixtureParams``."""

    incident: int = Field(ge=1, le=(1 << 53) - 1, description="Number of the incident")
    engine: Database = Field(default=Database.SQLITE, description="For which database")
    database: str | None = Field(default=None, description="Which database, where the request asked several")


def fixture_directory(settings: Settings, task: str) -> Path:
    """Where the fixture of a task lies once it has succeeded."""
    return settings.server / "fixtures" / task


def sweep_fixtures(settings: Settings, tasks: Tasks) -> None:
    """Remove those whose task is not known any more."""
    directory = settings.server / "fixtures"
    for one in directory.iterdir() if directory.is_dir() else ():
        try:
            tasks.get(one.name)
        except TaskUnknown:
            shutil.rmtree(one, ignore_errors=True)


def sweep_unfinished(settings: Settings, tasks: Tasks) -> None:
    """Remove runs of replays and reproductions that no task will finish: it was cancelled, has failed, or is not known any more."""
    runs = Runs(settings.runs)
    for mark in runs.unfinished():
        try:
            goes_on = not tasks.get(mark).state.is_final
        except TaskUnknown:
            goes_on = False
        if not goes_on:
            runs.forget_parts(mark)


def server_kinds(settings: Settings, export_store: ExportStore) -> list[TaskKind[Any, Any]]:
    """All kinds of tasks of ``relive serve``; exports are kept in the export store."""
    derived = [
        one for one in OPERATIONS.values() if isinstance(one.faces.rest, Route) and one.faces.rest.is_task
    ]
    plain: list[Operation[Any, Any]] = [COMMIT, RESTORE, REPLAY, REPRODUCE, VERIFY, *derived]
    return [*(_kind(settings, one) for one in plain), _export(settings, export_store), _fixture(settings)]


def _kind(settings: Settings, operation: Operation[W, R]) -> TaskKind[W, R]:
    def run(work: TaskAttempt, params: W) -> R:
        return _perform(settings, operation, work, params)

    def leftovers(work: TaskAttempt, _params: W) -> None:
        _end_process(work)
        _stop_branches(settings, work)

    return TaskKind(
        operation.name, operation.params, operation.result, run, leftovers, _looked_up(settings, operation)
    )


def _looked_up(settings: Settings, operation: Operation[Any, Any]) -> Callable[[Any], None] | None:
    return partial(operation.look_up, settings) if operation.look_up is not None else None


def _export(settings: Settings, export_store: ExportStore) -> TaskKind[ExportTask, ExportDone]:
    def run(work: TaskAttempt, params: ExportTask) -> ExportDone:
        def write(path: Path) -> None:
            _apart(settings, EXPORT, work, ExportParams(**params.model_dump(exclude={"lifetime"}), file=path))

        def store_result() -> ExportDone:
            suffix = "relive" if params.format is Format.RELIVE else "tar"
            kept = export_store.store_export(
                work.task, write, name=f"{work.task}.{suffix}", lifetime=params.lifetime, asked_by=work.by
            )
            return ExportDone(export=kept.id, name=kept.name, bytes=kept.bytes, expires=kept.expires)

        # What is kept under the task's id is given back as it is.
        return work.step(EXPORT.name, store_result, result=ExportDone, found=never_done)

    def leftovers(work: TaskAttempt, _params: ExportTask) -> None:
        _end_process(work)  # what it had half written, the export store sweeps

    look_up = _looked_up(settings, EXPORT)
    return TaskKind(EXPORT.name, ExportTask, ExportDone, run, leftovers, look_up)


def _fixture(settings: Settings) -> TaskKind[FixtureTask, FixtureMade]:
    def run(work: TaskAttempt, params: FixtureTask) -> FixtureMade:
        output = fixture_directory(settings, work.task)
        output.parent.mkdir(mode=0o700, exist_ok=True)
        return _perform(settings, FIXTURE, work, FixtureParams(**dict(params), output=output, force=True))

    def leftovers(work: TaskAttempt, _params: FixtureTask) -> None:
        _end_process(work)
        if work.noted(FIXTURE.name) is None:
            shutil.rmtree(fixture_directory(settings, work.task), ignore_errors=True)

    look_up = partial(look_up_incident, settings)
    return TaskKind(FIXTURE.name, FixtureTask, FixtureMade, run, leftovers, look_up)


def _perform(settings: Settings, operation: Operation[W, R], work: TaskAttempt, params: W) -> R:
    """As the one step of the task."""
    return work.step(
        operation.name,
        lambda: _apart(settings, operation, work, params),
        result=operation.result,
        found=never_done,
    )


def _apart(settings: Settings, operation: Operation[W, R], work: TaskAttempt, params: W) -> R:
    marked = settings.model_copy(update={"mark": work.task})

    def started(pid: int) -> None:
        stat = read_stat(pid)
        # Before it is told what to do: who begins the task again knows for whom to wait.
        work.note(_PROCESS, f"{pid} {stat.start_ticks if stat is not None else 0}")

    try:
        return perform_apart(
            operation,
            marked,
            params,
            work,
            cancel=work.to_end,
            started=started,
            is_first=work.attempt == 1,
        )
    except Cancelled:
        work.check()
        raise


def _end_process(work: TaskAttempt) -> None:
    """Wait until the operation of an earlier attempt has taken back what it did, and kill it if it takes too long."""
    pid, _, start_ticks = (work.noted(_PROCESS) or "0 0").partition(" ")
    try:
        handle = os.pidfd_open(int(pid)) if int(pid) else -1
    except ProcessLookupError:
        handle = -1
    if handle < 0:
        return
    try:
        # Asked after it was opened, so the handle is that process's or of nobody who matters.
        if not is_same_process(int(pid), int(start_ticks)):
            return
        if not has_ended(handle, _PATIENCE):
            send_signal(handle, signal.SIGKILL)
            has_ended(handle, _PATIENCE)
    finally:
        os.close(handle)


def _stop_branches(settings: Settings, work: TaskAttempt) -> None:
    is_told = any(work.noted(operation) is not None for operation in (RESTORE.name, RESTORE_MANY.name))
    for branch in list_branches(settings):
        if branch.facts.mark == work.task and not is_told:
            branch.stop()

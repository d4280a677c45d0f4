"""Tasks outlive the servers that do them: real processes, killed with SIGKILL at every point that matters."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import DiskFull
from relive.server.task import Task, TaskEvent, TaskEventKind, TaskState
from relive.server.tasks import Tasks

from .harms import GIVE_UP, KINDS, Params, harms

# Around the writes of the store, and in the midst of the harm itself: see task_server. Between one of these and the next nothing is
# written, or what is written already has a point in the step before.
STEPS = ("first", "second")
POINTS = (
    "before set_handed",
    "before begin",
    "after begin",
    "half first",
    "before note_done first",
    "after note_done first",
    "before note_done second",
    "after note_done second",
    "after end",
)


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    """As a process that does no tasks itself has them."""
    made = Tasks(Settings(home=tmp_path), KINDS["old"])
    yield made
    made.stop()


async def _until(tasks: Tasks, task: Task, kind: TaskEventKind) -> TaskEvent:
    async with asyncio.timeout(GIVE_UP):
        async for event in tasks.events(task.id):
            if event.event is kind:
                return event
    raise AssertionError(f"{task.id} ended without {kind}")


def until(tasks: Tasks, task: Task, kind: TaskEventKind = TaskEventKind.ENDED) -> Task:
    """The task when such an event was told."""
    asyncio.run(_until(tasks, task, kind))
    return tasks.get(task.id)


def test_a_server_killed_at_any_point_leaves_no_task_undone_and_no_step_done_twice(tasks, serve, tmp_path):
    """GIVEN a task for each point, WHEN servers die there one after another, THEN each step's harm was done once."""
    params = Params(directory=tmp_path)
    given = {point: tasks.submit("harm", params, by="test") for point in POINTS}
    for point, task in given.items():
        (tmp_path / f"plan {task.id} {point}").touch()
    for _ in POINTS:
        serve(tmp_path, tasks=1).wait()
    assert list(tmp_path.glob("plan *")) == [], "a server did not come to the point where it was to die"
    serve(tmp_path, tasks=1)
    for point, task in given.items():
        done = until(tasks, task)
        assert done.state is TaskState.SUCCEEDED, (point, done.error)
        assert harms(tmp_path, task.id) == sorted(STEPS), point
        assert done.result is not None
        assert all((tmp_path / f"{name}.done").exists() for name in done.result["made"]), point
    assert list(tmp_path.glob("*.half")) == []


def test_a_living_server_takes_over_what_a_killed_one_had(tasks, serve, tmp_path):
    task = tasks.submit("hold", Params(directory=tmp_path), by="test")
    first = serve(tmp_path)
    until(tasks, task, TaskEventKind.PROGRESS)
    second = serve(tmp_path)
    first.end(signal.SIGKILL)
    (tmp_path / "go").touch()
    done = until(tasks, task)
    assert done.result == {"made": [], "process": second.pid}
    assert done.attempts == 2


def test_a_server_that_is_asked_to_stop_leaves_its_task_to_the_next(tasks, serve, tmp_path):
    task = tasks.submit("hold", Params(directory=tmp_path), by="test")
    server = serve(tmp_path)
    until(tasks, task, TaskEventKind.PROGRESS)
    server.end(signal.SIGTERM)
    assert tasks.get(task.id).state is TaskState.QUEUED
    (tmp_path / "go").touch()
    serve(tmp_path)
    assert until(tasks, task).state is TaskState.SUCCEEDED


def test_two_servers_on_one_home_do_each_task_once(tasks, serve, tmp_path):
    servers = [serve(tmp_path), serve(tmp_path)]
    given = [tasks.submit("harm", Params(directory=tmp_path), by="test") for _ in range(16)]
    for task in given:
        done = until(tasks, task)
        assert (done.state, done.attempts) == (TaskState.SUCCEEDED, 1)
        assert harms(tmp_path, task.id) == sorted(STEPS)
        assert done.result is not None and done.result["process"] in [server.pid for server in servers]


def test_a_server_of_other_code_goes_on_with_steps_known_by_their_keys(tasks, serve, tmp_path):
    """New steps before, between and after shift nothing; a kind that it does not know fails in so many words."""
    params = Params(directory=tmp_path)
    task = tasks.submit("harm", params, by="test")
    (tmp_path / f"plan {task.id} after note_done first").touch()
    gone = tasks.submit("fail", params, by="test")
    serve(tmp_path, tasks=1).wait()
    serve(tmp_path, tasks=1, code="new")
    assert until(tasks, task).state is TaskState.SUCCEEDED
    assert harms(tmp_path, task.id) == ["between", "first", "last", "second"]
    error = until(tasks, gone).error
    assert error is not None
    assert error.code == "task-error"
    assert "another version" in (error.cause or "")


def test_a_task_that_a_dead_server_had_can_be_cancelled_and_its_leftovers_are_ended(tasks, serve, tmp_path):
    task = tasks.submit("harm", Params(directory=tmp_path), by="test")
    (tmp_path / f"plan {task.id} half second").touch()
    serve(tmp_path).wait()
    assert len(list(tmp_path.glob("*.half"))) == 1
    assert tasks.cancel(task.id).cancelling
    serve(tmp_path)
    done = until(tasks, task)
    assert (done.state, done.cancelling) == (TaskState.CANCELLED, False)
    assert harms(tmp_path, task.id) == ["first"]
    assert list(tmp_path.glob("*.half")) == []


def test_a_task_that_runs_is_cancelled_from_another_process(tasks, serve, tmp_path):
    task = tasks.submit("hold", Params(directory=tmp_path), by="test")
    serve(tmp_path)
    until(tasks, task, TaskEventKind.PROGRESS)
    tasks.cancel(task.id)
    done = until(tasks, task)
    assert done.state is TaskState.CANCELLED
    assert done.error is not None and done.error.code == "cancelled"


def test_tasks_are_done_though_the_file_of_dbos_was_lost(tasks, serve, tmp_path):
    """GIVEN one that was begun and one that waits, WHEN that file is gone, THEN both are done, and no harm twice."""
    given = [tasks.submit("harm", Params(directory=tmp_path), by="test") for _ in range(2)]
    (tmp_path / f"plan {given[0].id} after note_done first").touch()
    serve(tmp_path, tasks=1).wait()
    for path in (tmp_path / "server").glob("dispatch.*"):
        path.unlink()
    serve(tmp_path)
    for task in given:
        assert until(tasks, task).state is TaskState.SUCCEEDED
        assert harms(tmp_path, task.id) == sorted(STEPS)


def test_how_it_fails_is_told_in_the_one_shape_of_errors(tasks, serve, tmp_path):
    known = tasks.submit("fail", Params(directory=tmp_path), by="test")
    bug = tasks.submit("fail", Params(directory=tmp_path, words="bug"), by="test")
    serve(tmp_path)
    assert until(tasks, known).state is TaskState.FAILED
    assert tasks.get(known.id).error.model_dump() == {
        "code": "ref-unknown",
        "message": "there is no commit 'x'",
        "cause": "nobody made it",
        "remedy": "make it",
    }
    error = until(tasks, bug).error
    assert error is not None
    assert (error.code, error.cause) == ("error", "ZeroDivisionError: one by zero")
    assert "one by zero" in (tmp_path / "log").read_text()


async def _all_events(tasks: Tasks, task: Task, after: int = 0) -> list[TaskEvent]:
    async with asyncio.timeout(GIVE_UP):
        return [event async for event in tasks.events(task.id, after)]


def test_events_of_another_process_come_in_order_and_go_on_where_a_reader_was_interrupted(
    tasks, serve, tmp_path
):
    task = tasks.submit("tell", Params(directory=tmp_path, words="Grüße."), by="test")
    serve(tmp_path)
    events = asyncio.run(_all_events(tasks, task))
    assert events[0].event is TaskEventKind.BEGUN and events[0].data == {"attempt": 1}
    assert events[-1].event is TaskEventKind.ENDED
    assert events[-1].data == {"state": "succeeded", "result": {"made": [], "process": 0}, "error": None}
    assert [event.id for event in events] == sorted({event.id for event in events})
    progress = [event.data for event in events if event.event is TaskEventKind.PROGRESS]
    assert progress[-1] == {"what": "sending", "done": 30, "total": 30, "unit": "bytes"}
    assert [event.data for event in events if event.event is TaskEventKind.TOLD] == [{"text": "Grüße."}]
    assert asyncio.run(_all_events(tasks, task, after=events[-2].id)) == events[-1:]
    assert asyncio.run(_all_events(tasks, task, after=events[-1].id)) == []


def _submit_on(tasks: Tasks, directory: Path) -> None:
    """What little room SQLite has left in its files is soon used up."""
    while True:
        tasks.submit("harm", Params(directory=directory), by="test")


def test_a_task_on_a_disk_that_is_full_waits_for_room_and_loses_nothing(serve, small_disk):
    """GIVEN a task whose step is done when no byte is left, WHEN there is room again, THEN it has succeeded."""
    tasks = Tasks(Settings(home=small_disk), KINDS["old"])
    try:
        task = tasks.submit("hold", Params(directory=small_disk), by="test")
        serve(small_disk)
        until(tasks, task, TaskEventKind.PROGRESS)
        ballast = small_disk / "ballast"
        (small_disk / "go").touch()
        stat = os.statvfs(small_disk)
        with pytest.raises(OSError, match="No space left"):
            ballast.write_bytes(bytes((stat.f_bavail + 10) * stat.f_bsize))
        with pytest.raises(DiskFull, match="no space left"):
            _submit_on(tasks, small_disk)
        assert tasks.get(task.id).state in {TaskState.RUNNING, TaskState.SUCCEEDED}
        ballast.unlink()
        assert until(tasks, task).state is TaskState.SUCCEEDED
    finally:
        tasks.stop()


def test_its_files_are_its_owners_only_and_dbos_heeds_no_variables(serve, tasks, tmp_path, monkeypatch):
    task = tasks.submit("tell", Params(directory=tmp_path), by="test")
    serve(tmp_path)
    until(tasks, task)
    assert (tmp_path / "server").stat().st_mode & 0o777 == 0o700
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "server").iterdir()}
    assert set(modes.values()) == {0o600}, modes
    with sqlite3.connect(tmp_path / "server" / "dispatch.sqlite") as database:
        versions = database.execute("SELECT DISTINCT application_version FROM workflow_status").fetchall()
    database.close()
    assert versions in ([("relive-tasks-1",)], [])

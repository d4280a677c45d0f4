"""A replay of several runs whose server is killed amid them: the next one does only what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from relive.config import Settings
from relive.incidents.incidents import Incidents
from relive.incidents.runs import RunPart, Runs
from relive.operations.replays import ReplayParams
from relive.operations.runs import RunsParams, list_runs, show_run
from relive.server.export_shelf import ExportStore
from relive.server.task import Task
from relive.server.task_kinds import server_kinds, sweep_unfinished
from relive.server.tasks import Tasks
from support.payments import Payments
from support.waiting import eventually


@pytest.fixture
def settings(payments: Payments) -> Settings:
    return payments.relive.settings


@pytest.fixture
def tasks(settings: Settings) -> Iterator[Tasks]:
    export_store = ExportStore(settings.server)
    made = Tasks(settings, server_kinds(settings, export_store))
    yield made
    made.stop()
    export_store.close()


def ended(tasks: Tasks, task: Task) -> Task:
    return eventually(
        lambda: found if (found := tasks.get(task.id)).state.is_final else None, "the task ends", limit=90
    )


@contextmanager
def seen_again(settings: Settings, number: int) -> Iterator[None]:
    """Within the block the incident was seen once more, this time before any commit."""
    kept = Incidents(settings.incidents)
    incident = kept.get(number)
    latest = incident.occurrence(first=False).model_copy(update={"before": None})
    kept.save(incident.model_copy(update={"latest": latest}))
    try:
        yield
    finally:
        kept.save(incident)


def test_runs_that_a_killed_server_had_done_count(payments, settings, tasks, serve):
    """GIVEN a run that is done, WHEN the server is killed, THEN the next one makes the others of what was begun, and no other.

    What is replayed stays the same although the incident was seen again, and the whole lies there once.
    """
    runs, before = Runs(settings.runs), list_runs(settings, RunsParams()).items
    server = serve(settings.home, code="server")
    params = ReplayParams(what=str(payments.incident), times=3, jobs=1, speed="max")
    task = tasks.submit("replay", params, by="test")
    (first, *_) = eventually(lambda: runs.parts(task.id), "a run is done", limit=90)
    server.end()
    with seen_again(settings, payments.incident):
        serve(settings.home, code="server")
        done = ended(tasks, task)
    assert (done.state, done.error, done.attempts) == ("succeeded", None, 2)

    result: dict[str, Any] = done.result or {}
    assert [run["number"] for run in result["runs"]] == [1, 2, 3]
    assert json.loads(first.result) == result["runs"][0]  # with all its times: it was not made again
    (row, *others) = list_runs(settings, RunsParams()).items
    assert others == before
    whole = show_run(settings, row.number).replay
    assert whole is not None and whole.model_dump(mode="json") == result
    assert (row.times, row.reproduced, row.began_wall_ns) == (3, whole.reproduced, first.began_wall_ns)
    assert runs.parts(task.id) == []


def test_runs_that_nobody_is_going_to_finish_are_swept(settings, tasks):
    task = tasks.submit("replay", ReplayParams(what="1"), by="test")  # no server does it
    runs = Runs(settings.runs)
    for mark in (task.id, "0" * 32):
        runs.add_part(mark, RunPart(1, "", 1, 0.5, "{}"))
    sweep_unfinished(settings, tasks)
    assert runs.unfinished() == [task.id]
    tasks.cancel(task.id)
    sweep_unfinished(settings, tasks)
    assert runs.unfinished() == []

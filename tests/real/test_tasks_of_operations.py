"""Operations as tasks of a server that is killed when they have done what they do, and before it could note that."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from relive.agent.capsule.lives import find_capsule
from relive.agent.control.client import ask_agent
from relive.config import Settings
from relive.operations.committing import CommitParams
from relive.operations.restoring import RestoreParams
from relive.sandbox.branch import list_branches
from relive.server.export_shelf import ExportStore
from relive.server.task import Task, TaskEventKind, TaskState
from relive.server.task_kinds import ExportTask, server_kinds
from relive.server.tasks import Tasks
from relive.store import Store
from server.harms import GIVE_UP
from server.task_server import TaskServers

from .harness import LIMIT, Relive

SERVICE = "import time\nwhile True: time.sleep(0.05)"


@pytest.fixture
def serve() -> Iterator[TaskServers]:
    made = TaskServers()
    yield made
    made.close()


@pytest.fixture
def settings(relive: Relive) -> Settings:
    return relive.settings


@pytest.fixture
def export_store(settings: Settings) -> Iterator[ExportStore]:
    made = ExportStore(settings.server)
    yield made
    made.close()


@pytest.fixture
def tasks(settings: Settings, export_store: ExportStore) -> Iterator[Tasks]:
    made = Tasks(settings, server_kinds(settings, export_store))
    yield made
    made.stop()


async def _ended(tasks: Tasks, task: Task) -> None:
    async with asyncio.timeout(GIVE_UP):
        async for event in tasks.events(task.id):
            if event.event is TaskEventKind.ENDED:
                return


def ended(tasks: Tasks, task: Task) -> Task:
    asyncio.run(_ended(tasks, task))
    return tasks.get(task.id)


def test_what_was_done_is_found_and_not_done_again(relive, serve, tasks, export_store, settings, start):
    """GIVEN servers killed after a commit, a restore, an export, WHEN others go on, THEN there is one of each."""
    process = start(sys.executable, "-c", SERVICE)
    commit = tasks.submit("commit", CommitParams(target=f"pid:{process.pid}"), by="test")
    (relive.home / f"plan {commit.id} before note_done commit").touch()
    serve(relive.home, code="server").wait()
    store = Store(settings.store)
    (taken,) = store.log()
    assert taken.capture == commit.id

    restore = tasks.submit("restore", RestoreParams(ref=taken.id), by="test")
    (relive.home / f"plan {restore.id} before note_done restore").touch()
    serve(relive.home, code="server").wait()
    (lost,) = list_branches(settings)
    assert lost.facts.mark == restore.id

    export = tasks.submit("export", ExportTask(ref=taken.id), by="test")
    (relive.home / f"plan {export.id} before note_done export").touch()
    serve(relive.home, code="server").wait()
    serve(relive.home, code="server")
    for task in (commit, restore, export):
        assert ended(tasks, task).state is TaskState.SUCCEEDED, (task.kind, tasks.get(task.id).error)
        assert tasks.get(task.id).attempts >= 2
    assert [line.id for line in store.log()] == [taken.id]
    assert (tasks.get(commit.id).result or {})["id"] == taken.id
    (branch,) = [one for one in list_branches(settings) if one.is_alive]
    assert (tasks.get(restore.id).result or {})["id"] == branch.facts.id != lost.facts.id
    branch.stop()
    assert [one.id for one in export_store.all()] == [export.id]
    assert [path.stem for path in (settings.server / "exports").iterdir()] == [export.id]
    store.close()


def test_an_agent_that_is_asked_again_for_a_commit_gives_the_one_it_takes_or_took(relive, settings):
    """The agent outlives who asked it, and goes on: asked again under the same name, it must not take another."""
    capsule = relive.run(sys.executable, "-c", SERVICE)
    socket = find_capsule(settings, capsule.name).paths.agent_socket
    order = {"op": "commit", "capture": "0123456789abcdef" * 2}
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda _: ask_agent(socket, order, limit=LIMIT), range(2)))
    answers.append(ask_agent(socket, order, limit=LIMIT))
    assert {answer["id"] for answer in answers} == {line["id"] for line in relive("log")}
    assert len(relive("log")) == 1

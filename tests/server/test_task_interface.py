"""What ``Tasks`` refuses, and what it costs to have it: nothing here runs a task, so nothing imports DBOS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.config import Settings
from relive.errors import TasksFull, UsageError
from relive.server.task import TaskState
from relive.server.tasks import PAGE_MOST, Tasks

from .harms import KINDS, Outcome, Params


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    made = Tasks(Settings(home=tmp_path, tasks_waiting=2), KINDS["old"])
    yield made
    made.stop()


def test_a_kind_that_is_not_there_or_an_input_of_another_is_refused(tasks, tmp_path):
    for kind, given in (("harms", Params(directory=tmp_path)), ("harm", Outcome())):
        with pytest.raises(UsageError, match="there is no task"):
            tasks.submit(kind, given, by="ann")


def test_no_more_wait_than_may(tasks, tmp_path):
    params = Params(directory=tmp_path)
    first, _ = tasks.submit("harm", params, by="ann"), tasks.submit("harm", params, by="ann")
    with pytest.raises(TasksFull) as refused:
        tasks.submit("harm", params, by="ann")
    assert refused.value.as_json() == {
        "code": "tasks-full",
        "message": "the task harm was not taken on",
        "cause": "2 tasks wait for their turn already",
        "remedy": "try again when some of them are done, or raise `tasks_waiting`",
    }
    tasks.cancel(first.id)
    assert tasks.submit("harm", params, by="ann").state is TaskState.QUEUED


@pytest.mark.parametrize("limit", [0, -1, PAGE_MOST + 1])
def test_a_page_has_a_size(tasks, limit):
    with pytest.raises(UsageError, match="a page cannot have"):
        tasks.page(limit=limit)


def test_dbos_is_imported_by_who_does_tasks_only():
    program = "import sys, relive.server.tasks; sys.exit('dbos' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

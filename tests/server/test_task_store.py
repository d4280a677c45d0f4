from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relive.errors import KeyReused, StoreVersionUnknown, TasksFull, TaskUnknown, UsageError
from relive.server.task import Task, TaskEventKind, TaskFailure, TaskProgress, TaskState
from relive.server.task_store import News, Superseded, TaskStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TaskStore]:
    made = TaskStore(tmp_path)
    yield made
    made.close()


def submit(
    store: TaskStore,
    kind: str = "commit",
    number: int = 1,
    *,
    key: str | None = None,
    by: str = "ann",
    most: int = 99,
) -> Task:
    task, _ = store.submit(kind, {"number": number}, by=by, key=key, waiting_most=most)
    return task


def end(store: TaskStore, task: Task, attempt: int = 1) -> None:
    store.end(News(task.id, attempt, None, ()), TaskState.SUCCEEDED, result={"it": "is"}, failure=None)


def test_a_key_gives_the_same_task_and_is_refused_with_anything_else(store):
    first = submit(store, key="k")
    assert store.submit("commit", {"number": 1}, by="ann", key="k", waiting_most=99) == (first, False)
    for kind, number in (("restore", 1), ("commit", 2)):
        with pytest.raises(KeyReused, match="'k' was given before") as refused:
            submit(store, kind, number, key="k")
        assert first.id in (refused.value.cause or "")
    assert submit(store, key="k", by="bob").id != first.id, "another's key is his own"
    assert submit(store).id != submit(store).id, "without a key each is a new one"


def test_a_key_still_gives_its_task_when_no_other_is_taken_on(store):
    """Somebody who asks again because he did not hear the answer gets it, though the queue is full meanwhile."""
    first = submit(store, key="k", most=1)
    with pytest.raises(TasksFull, match="was not taken on"):
        submit(store, most=1)
    assert submit(store, key="k", most=1) == first


def test_one_key_given_at_one_time_to_several_processes_makes_one_task(tmp_path):
    stores = [TaskStore(tmp_path) for _ in range(4)]
    found: list[Task] = []
    begin = threading.Barrier(4)

    def ask(store: TaskStore) -> None:
        begin.wait()
        found.append(submit(store, key="k"))

    threads = [threading.Thread(target=ask, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert len(found) == 4
    assert len({task.id for task in found}) == 1


def test_pages_stay_right_while_tasks_arrive(store):
    given = [submit(store, number=number) for number in range(7)]
    first = store.page(after=None, limit=3, state=None, kind=None)
    for number in range(5):
        submit(store, number=100 + number)
    rest = []
    cursor = first.next
    while cursor is not None:
        page = store.page(after=cursor, limit=3, state=None, kind=None)
        rest += page.tasks
        cursor = page.next
    assert [task.id for task in [*first.tasks, *rest]] == [task.id for task in reversed(given)]


def test_a_page_can_be_of_one_state_and_one_kind(store):
    done, waits, other = submit(store), submit(store), submit(store, "restore")
    store.begin(done.id)
    end(store, done)

    def ids(state: TaskState | None = None, kind: str | None = None) -> list[str]:
        return [task.id for task in store.page(after=None, limit=9, state=state, kind=kind).tasks]

    assert ids(TaskState.SUCCEEDED) == [done.id]
    assert ids(TaskState.QUEUED) == [other.id, waits.id]
    assert ids(kind="commit") == [waits.id, done.id]
    assert ids(TaskState.QUEUED, "restore") == [other.id]
    assert ids(kind="\udc80") == []


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "٣", "9" * 19, "1 OR 1"])
def test_what_is_no_cursor_is_refused(store, cursor):
    with pytest.raises(UsageError, match="is no cursor"):
        store.page(after=cursor, limit=1, state=None, kind=None)


@pytest.mark.parametrize("name", ["", "x", "0" * 32, "\udc80", "' OR 1 --"])
def test_a_task_that_is_not_there_is_unknown(store, name):
    submit(store)
    for ask in (store.get, store.cancel, store.has_ended):
        with pytest.raises(TaskUnknown):
            ask(name)


def test_who_began_an_earlier_attempt_can_write_nothing_any_more(store):
    """It was taken for dead, and lives: what it does from then on is not the task's."""
    task = submit(store)
    store.begin(task.id)
    store.announce(task.id, 1, "step")
    again = store.begin(task.id)
    assert again is not None
    assert (again.attempt, again.deaths) == (2, 1)
    for write in (
        lambda: store.announce(task.id, 1, "next"),
        lambda: store.note_done(task.id, 1, "step", "1"),
        lambda: store.hand_back(task.id, 1),
        lambda: end(store, task),
    ):
        with pytest.raises(Superseded):
            write()
    store.publish([News(task.id, 1, TaskProgress(what="w", done=1, total=2, unit="steps"), ("said",))])
    assert [event.event for event in store.events_after(task.id, 0)] == [
        TaskEventKind.BEGUN,
        TaskEventKind.BEGUN,
    ]
    assert store.announce(task.id, 2, "step") == (True, None)
    end(store, task, 2)
    assert store.get(task.id).result == {"it": "is"}


def test_one_that_was_handed_back_did_not_die(store):
    task = submit(store)
    for attempt in range(1, 8):
        begun = store.begin(task.id)
        assert begun is not None
        assert (begun.attempt, begun.deaths) == (attempt, 0)
        store.hand_back(task.id, attempt)
    assert store.get(task.id).state is TaskState.QUEUED


def test_a_task_that_waits_is_cancelled_at_once_and_one_that_has_ended_stays_as_it_is(store):
    waits, done = submit(store), submit(store)
    cancelled = store.cancel(waits.id)
    assert cancelled.state is TaskState.CANCELLED
    assert cancelled.error is not None and cancelled.error.code == "cancelled"
    assert store.begin(waits.id) is None
    store.begin(done.id)
    end(store, done)
    assert store.cancel(done.id) == store.get(done.id)
    assert store.get(done.id).state is TaskState.SUCCEEDED


def test_one_that_was_begun_is_cancelled_by_who_has_it(store):
    """It may have left something, which has to be ended first, even if it waits just now."""
    task = submit(store)
    store.begin(task.id)
    store.hand_back(task.id, 1)
    assert store.cancel(task.id).state is TaskState.QUEUED
    assert store.cancelling_among([task.id]) == {task.id}
    begun = store.begin(task.id)
    assert begun is not None and begun.cancelling


def test_of_progress_only_the_newest_is_kept_and_numbers_of_events_never_come_again(store):
    task = submit(store)
    store.begin(task.id)
    seen = []
    for done in range(3):
        store.publish([News(task.id, 1, TaskProgress(what="w", done=done, total=3, unit="steps"), ())])
        events = store.events_after(task.id, 0)
        assert [event.event for event in events] == [TaskEventKind.BEGUN, TaskEventKind.PROGRESS]
        seen.append(events[-1].id)
    assert seen == sorted(set(seen))
    progress = store.get(task.id).progress
    assert progress is not None and progress.done == 2


def test_the_newest_that_have_ended_are_kept_and_all_that_have_not(store):
    waits = submit(store)
    ended = [submit(store, key=f"k{number}") for number in range(4)]
    for task in ended:
        store.begin(task.id)
        store.announce(task.id, 1, "s")
        end(store, task)
    assert store.forget_old(2) == 2
    assert store.forget_old(2) == 0
    kept = [task.id for task in store.page(after=None, limit=9, state=None, kind=None).tasks]
    assert kept == [ended[3].id, ended[2].id, waits.id]
    assert store.ended_among([task.id for task in [waits, *ended]]) == {task.id for task in ended}
    assert submit(store, key="k0").id != ended[0].id


def test_text_that_is_no_unicode_is_kept(store):
    """A path may hold any bytes."""
    task, _ = store.submit("commit", {"path": "/a\udc80"}, by="ann", key=None, waiting_most=9)
    assert store.get(task.id).input == {"path": "/a\udc80"}


def test_how_it_failed_is_kept_whole(store):
    task = submit(store)
    store.begin(task.id)
    failure = TaskFailure(code="disk-full", message="m", cause=None, remedy="r")
    store.end(News(task.id, 1, None, ("last words",)), TaskState.FAILED, result=None, failure=failure)
    assert store.get(task.id).error == failure
    *_, told, ended = store.events_after(task.id, 0)
    assert told.data == {"text": "last words"}
    assert ended.data == {"state": "failed", "result": None, "error": failure.model_dump()}


def test_tasks_of_a_newer_relive_are_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "tasks.sqlite") as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(StoreVersionUnknown, match="its version is 2"):
        TaskStore(tmp_path)


def test_the_same_events_are_asked_for_by_any_number(store):
    """What a browser sends back as the last event it saw is its word, not ours."""
    task = submit(store)
    store.begin(task.id)
    assert len(store.events_after(task.id, -1)) == 1
    assert store.events_after(task.id, 1 << 70) == []
    assert store.events_after("\udc80", 0) == []

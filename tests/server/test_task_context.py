"""Steps of a task, in one process: what happens to each when its task is begun again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from relive.errors import Cancelled, DiskFull, StoreError
from relive.server import task_context
from relive.server.task import TaskId
from relive.server.task_context import LeftForAnother, TaskAttempt, never_done
from relive.server.task_store import Superseded, TaskStore


class Taken(BaseModel):
    id: str
    bytes: int = 0


class Attempts:
    """One task, begun as often as asked."""

    def __init__(self, store: TaskStore) -> None:
        self.store = store
        self.task = TaskId(store.submit("commit", {}, by="ann", key=None, waiting_most=9)[0].id)
        self.done: list[str] = []

    def begin(self) -> TaskAttempt:
        begun = self.store.begin(self.task)
        assert begun is not None
        return TaskAttempt(self.store, self.task, "commit", begun.attempt, "tester")

    def act(self, name: str) -> Taken:
        self.done.append(name)
        return Taken(id=name)


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Attempts]:
    store = TaskStore(tmp_path)
    yield Attempts(store)
    store.close()


def not_asked() -> None:
    raise AssertionError("there is nothing to look for")


def not_done() -> Taken:
    raise AssertionError("it is done already")


def fail() -> Taken:
    raise StoreError("it broke")


def test_a_step_whose_value_is_known_is_neither_done_nor_looked_for_again(attempts):
    attempts.begin().step("take", lambda: attempts.act("a"), result=Taken, found=not_asked)
    again = attempts.begin().step("take", not_done, result=Taken, found=not_asked)
    assert again == Taken(id="a")
    assert attempts.done == ["a"]


def test_a_step_that_was_announced_is_looked_for_and_what_is_found_is_its_value(attempts):
    with pytest.raises(StoreError):
        attempts.begin().step("take", fail, result=Taken, found=not_asked)
    found = attempts.begin().step("take", not_done, result=Taken, found=lambda: Taken(id="b"))
    assert found == Taken(id="b")
    assert attempts.begin().step("take", not_done, result=Taken, found=not_asked) == found


def test_a_step_that_left_nothing_is_done(attempts):
    with pytest.raises(StoreError):
        attempts.begin().step("take", fail, result=Taken, found=not_asked)
    attempts.begin().step("take", lambda: attempts.act("c"), result=Taken, found=never_done)
    assert attempts.done == ["c"]


def test_an_attempt_that_was_superseded_begins_no_step(attempts):
    old = attempts.begin()
    attempts.begin()
    with pytest.raises(Superseded):
        old.step("take", not_done, result=Taken, found=not_asked)


def test_a_cancelled_task_ends_at_its_next_step_or_word(attempts):
    work = attempts.begin()
    work.cancel()
    with pytest.raises(Cancelled):
        work.step("take", not_done, result=Taken, found=not_asked)
    with work.progress("w", 2) as at, pytest.raises(Cancelled):
        at(1)
    with work.transfer("w", 2) as more, pytest.raises(Cancelled):
        more(1)
    with work.uninterrupted():
        work.check()
    with pytest.raises(Cancelled):
        work.check()


def test_a_task_that_is_left_is_no_error_that_an_operation_could_catch(attempts):
    work = attempts.begin()
    work.leave()
    with pytest.raises(LeftForAnother):
        work.check()
    assert not issubclass(LeftForAnother, Exception)


def test_the_value_of_a_step_waits_for_room(attempts, monkeypatch):
    """The harm is done: its value must not be lost, so it is written when there is room."""
    monkeypatch.setattr(task_context, "_ROOM_POLL", 0)
    note, full = attempts.store.note_done, 3

    def note_done(*arguments: object) -> None:
        nonlocal full
        full -= 1
        if full:
            raise DiskFull("no space left")
        note(*arguments)

    monkeypatch.setattr(attempts.store, "note_done", note_done)
    work = attempts.begin()
    work.step("take", lambda: attempts.act("d"), result=Taken, found=not_asked)
    assert attempts.done == ["d"]
    assert work.news().messages == ("no space left; waiting for room",)
    assert attempts.begin().step("take", not_done, result=Taken, found=not_asked) == Taken(id="d")


def test_a_server_that_stops_does_not_wait_for_room(attempts, monkeypatch):
    def note_done(*_arguments: object) -> None:
        raise DiskFull("no space left")

    monkeypatch.setattr(attempts.store, "note_done", note_done)
    work = attempts.begin()

    def act() -> Taken:
        work.leave()
        return Taken(id="e")

    with pytest.raises(LeftForAnother):
        work.step("take", act, result=Taken, found=not_asked)


def test_news_are_told_once(attempts):
    work = attempts.begin()
    with work.transfer("sending", 30) as more:
        more(10)
        more(5)
    work.status("one")
    work.status("two")
    news = work.news()
    assert news.messages == ("one", "two")
    assert news.progress is not None
    assert news.progress.model_dump() == {"what": "sending", "done": 15, "total": 30, "unit": "bytes"}
    assert (work.news().progress, work.news().messages) == (None, ())

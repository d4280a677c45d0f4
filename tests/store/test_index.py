"""The index can be lost, damaged, behind, ahead or locked; it follows from the files beside it."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from relive.errors import ReliveError
from relive.store import Store

from .builders import commit, is_whole


def lose(home):
    for path in home.glob("index.sqlite*"):
        path.unlink()


def scribble(home):
    for path in home.glob("index.sqlite-*"):
        path.unlink()
    (home / "index.sqlite").write_bytes(b"no database at all" * 100)


def empty(home):
    lose(home)
    (home / "index.sqlite").touch()


@pytest.mark.parametrize("damage", [lose, scribble, empty])
def test_a_lost_index_is_made_anew(store, home, damage):
    ids = [commit(store, wall_ns=number, capture=f"{number}").id for number in (1, 2)]
    store.tag("best", ids[0])
    store.close()
    damage(home)
    again = Store(home)
    assert [line.id for line in again.log()] == ids[::-1]
    assert again.resolve("best") == ids[0]
    assert again.delete(ids[0]) >= 0
    assert is_whole(again, ids[1])
    again.close()


def test_an_index_that_lost_its_last_lines_catches_up(store, home):
    """SQLite may lose what it wrote last when the power fails; what was reported durable must be found again."""
    one = commit(store)
    store._index.remove(one.id)
    store.close()
    again = Store(home)
    assert [line.id for line in again.log()] == [one.id]
    again.close()


def test_an_index_that_knows_too_much_forgets(store, home):
    one, other = commit(store, capture="1"), commit(store, capture="2", files={"f": b"own"})
    (home / "manifests" / f"{other.id}.json").unlink()
    store.close()
    again = Store(home)
    assert [line.id for line in again.log()] == [one.id]
    assert is_whole(again, one.id)
    again.close()


def test_rebuilding_changes_nothing_but_the_times(store):
    for number in range(3):
        commit(store, wall_ns=number, capture=f"{number}", sequence=number)
    before = [(line.id, line.bytes, line.sequence, line.parent) for line in store.log()]
    assert store.rebuild_index() == 3
    assert [(line.id, line.bytes, line.sequence, line.parent) for line in store.log()] == before


def test_a_store_that_is_busy_can_still_be_read(store, home):
    """A process that holds the lock may be stopped; `relive log` must not wait for it."""
    one = commit(store)
    with store.internals.lock.held(shared=False):
        other = Store(home)
        assert other.resolve(one.id) == one.id
        other.close()


def test_a_locked_index_is_a_busy_store(store, monkeypatch):
    writer = sqlite3.connect(store.internals.directory / "index.sqlite", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    store._index._database.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(ReliveError) as caught:
        commit(store)
    assert caught.value.code == "store-busy"
    writer.close()
    assert store.log() == []


def test_a_store_may_be_opened_in_one_thread_and_used_in_another(home):
    """As the agent does: opened and closed in its loop, staging in capture threads; the keeper's in its own thread."""
    store = Store(home)
    with ThreadPoolExecutor(1) as keeper:
        one = keeper.submit(commit, store).result()
    staged = []
    thread = threading.Thread(target=lambda: staged.append(store.stage()))
    thread.start()
    thread.join()
    staged[0].discard()
    assert store.resolve(one.id) == one.id
    store.close()

"""An index that an older Relive wrote, or still writes, becomes one of this version, and nothing of it is lost."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

import pytest

from relive.store import CommitQuery, Store

from .builders import commit

# As Relive wrote it before pages: its tables, and the columns that its agents name when they enter a commit.
VERSION_0 = """
CREATE TABLE commits (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, life TEXT, kind TEXT NOT NULL, root INTEGER NOT NULL,
    trigger TEXT NOT NULL, taken_wall_ns INTEGER NOT NULL, sequence INTEGER, capture TEXT NOT NULL,
    pause_us INTEGER NOT NULL, durable_us INTEGER, bytes INTEGER NOT NULL, new_bytes INTEGER NOT NULL, parent TEXT
);
CREATE INDEX commits_by_name ON commits (name, taken_wall_ns);
CREATE INDEX commits_by_life ON commits (life, sequence);
CREATE TABLE uses (object TEXT NOT NULL, commit_id TEXT NOT NULL, PRIMARY KEY (object, commit_id)) WITHOUT ROWID;
CREATE INDEX uses_by_commit ON uses (commit_id);
"""
COLUMNS_0 = "id, name, life, kind, root, trigger, taken_wall_ns, sequence, capture, pause_us, durable_us, bytes, new_bytes, parent"


@pytest.fixture
def old(store, home):
    """Three commits in an index of version 0; their durable times are nowhere else."""
    lines = [commit(store, capture=f"{n}", wall_ns=n) for n in range(3)]
    store.close()
    rows = database_of(home, f"SELECT {COLUMNS_0} FROM commits")
    uses = database_of(home, "SELECT * FROM uses")
    for path in home.glob("index.sqlite*"):
        path.unlink()
    with closing(sqlite3.connect(home / "index.sqlite", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.executescript(VERSION_0)
        database.executemany(f"INSERT INTO commits VALUES ({', '.join('?' * 14)})", rows)
        database.executemany("INSERT INTO uses VALUES (?, ?)", uses)
        database.execute("UPDATE commits SET durable_us = 77")
    return [line.id for line in lines]


def database_of(home, query: str) -> list[tuple]:
    with closing(sqlite3.connect(home / "index.sqlite")) as database:
        return database.execute(query).fetchall()


def ids(store: Store, **asked: object) -> list[str]:
    return [line.id for line in store.page(CommitQuery(**asked)).items]  # type: ignore[arg-type]


def test_an_old_index_is_brought_to_this_version_with_the_words_of_its_commits(old, home):
    store = Store(home)
    assert ids(store) == ids(store, text="--now") == old[::-1]
    assert {line.durable_us for line in store.log()} == {77}, "it was not upgraded but made anew"
    assert store.delete(old[0]) >= 0
    store.close()
    assert database_of(home, "PRAGMA user_version") == [(2,)]


def test_a_line_that_an_old_agent_enters_later_is_found_after_the_next_opening(store, home):
    one = commit(store)
    with closing(sqlite3.connect(home / "index.sqlite", isolation_level=None)) as agent:
        row = agent.execute(f"SELECT {COLUMNS_0} FROM commits").fetchone()
        agent.execute(f"INSERT OR REPLACE INTO commits ({COLUMNS_0}) VALUES ({', '.join('?' * 14)})", row)
    assert ids(store) == [one.id]
    assert ids(store, text="pay") == []
    store.close()
    again = Store(home)
    assert ids(again, text="pay") == [one.id]
    again.close()


def test_a_commit_whose_manifest_is_damaged_stays_in_the_list(old, home):
    (home / "manifests" / f"{old[1]}.json").write_text("{}")
    store = Store(home)
    assert ids(store) == old[::-1]
    assert ids(store, text="pay") == [old[2], old[0]]
    store.close()


def test_texts_go_with_the_last_commit_that_has_them(store, home):
    one, other = commit(store, capture="1"), commit(store, capture="2")
    store.delete(one.id)
    assert len(database_of(home, "SELECT * FROM texts")) == 1
    store.delete(other.id)
    assert database_of(home, "SELECT * FROM texts") == []


def test_manifests_are_listed_only_when_their_directory_has_changed(store, home, monkeypatch):
    """Opening a store of 100,000 commits is as quick as opening an empty one."""
    one = commit(store)
    store.close()
    long_ago(home)
    Store(home).close()  # compares, and notes that the index follows
    listed = []
    monkeypatch.setattr("relive.store.index.QUICK_NS", 10**18)  # each comparison that is of use is made
    monkeypatch.setattr("relive.store.manifests.Manifests.ids", lambda self: listed.append(self) or {one.id})
    Store(home).close()
    assert listed == []
    again = Store(home)
    again._index.remove(one.id)  # whatever changes the index takes the note away
    again.close()
    Store(home).close()
    assert len(listed) == 1


def long_ago(home) -> None:
    os.utime(home / "manifests", ns=(10**18, 10**18))

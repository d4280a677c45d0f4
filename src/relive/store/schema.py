"""The tables of a store's index, and how an index of an older Relive gets those of this one.

``PRAGMA user_version`` is 2. Version 0 had neither ``texts`` nor ``marks``, nor the column ``text``; version 1 had no column
``sum``. An agent of such a Relive may still run and write lines, in which these are then NULL until the next process that opens the
store has filled them in.

``sum``: a checksum of the line, see ``Index.doubtful``.
``texts``: what can be searched, once for all commits that have the same, which are mostly all of one service.
``marks``: facts about the index by name: see ``Index.follows``.
"""

from __future__ import annotations

import sqlite3

__all__ = ["prepare"]

VERSION = 2
_TABLES = """
CREATE TABLE IF NOT EXISTS commits (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, life TEXT, kind TEXT NOT NULL, root INTEGER NOT NULL,
    trigger TEXT NOT NULL, taken_wall_ns INTEGER NOT NULL, sequence INTEGER, capture TEXT NOT NULL,
    pause_us INTEGER NOT NULL, durable_us INTEGER, bytes INTEGER NOT NULL, new_bytes INTEGER NOT NULL, parent TEXT,
    text INTEGER, sum INTEGER
);
CREATE TABLE IF NOT EXISTS uses (object TEXT NOT NULL, commit_id TEXT NOT NULL, PRIMARY KEY (object, commit_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS texts (id INTEGER PRIMARY KEY, name TEXT NOT NULL, words TEXT NOT NULL, UNIQUE (name, words));
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
# Each serves one kind of page, in its order; the last one holds all that ``targets`` adds up.
_INDEXES = """
CREATE INDEX IF NOT EXISTS commits_by_life ON commits (life, sequence);
CREATE INDEX IF NOT EXISTS uses_by_commit ON uses (commit_id);
CREATE INDEX IF NOT EXISTS commits_by_time ON commits (taken_wall_ns, id, text);
CREATE INDEX IF NOT EXISTS commits_of_name ON commits (name, taken_wall_ns, id);
CREATE INDEX IF NOT EXISTS commits_of_trigger ON commits (trigger, taken_wall_ns, id);
CREATE INDEX IF NOT EXISTS commits_of_name_and_trigger ON commits (name, trigger, taken_wall_ns, id);
CREATE INDEX IF NOT EXISTS commits_of_text ON commits (text, taken_wall_ns, id);
CREATE INDEX IF NOT EXISTS commits_of_life ON commits (life, taken_wall_ns, id);
CREATE INDEX IF NOT EXISTS commits_measured ON commits (name, pause_us, taken_wall_ns, bytes, new_bytes);
"""


def prepare(database: sqlite3.Connection) -> None:
    """Make the tables, or bring them to this version; an index of a later Relive is left as it is."""
    if _version(database) >= VERSION:
        return
    with database:
        database.execute("BEGIN IMMEDIATE")
        if _version(database) >= VERSION:
            return
        for statement in _TABLES.split(";"):
            database.execute(statement)
        columns = {row[1] for row in database.execute("PRAGMA table_info(commits)")}
        for added in ("text", "sum"):
            if added not in columns:
                database.execute(f"ALTER TABLE commits ADD COLUMN {added} INTEGER")
        database.execute("DROP INDEX IF EXISTS commits_by_name")  # commits_of_name does what it did
        for statement in _INDEXES.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {VERSION}")


def _version(database: sqlite3.Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])

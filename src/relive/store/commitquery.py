"""Which commits a page is to hold, and how SQLite finds them without looking at all.

The way is chosen here, not by SQLite's planner, which knows nothing of how many commits there are of a kind:

1. Commits with a tag: few; looked up by their ids and sorted.
2. The beginning of an id, of two digits or more: the same.
3. Words: first the texts that hold them, of which there are few, since commits of a service share theirs. Up to ``_TEXTS_MOST``
   texts give their newest commits, which are merged; of more, the newest commits are walked through.
4. All else: walked through from the cursor on, newest first, by the index that the target and the trigger have.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

from relive.model.commit import CommitId, Trigger
from relive.store.paging import Place
from relive.store.searching import as_sql_text, wanted_words

__all__ = ["CommitQuery", "find_rows"]

_TEXTS_MOST = 32
_BACKWARD = "ORDER BY taken_wall_ns DESC, id DESC"
_PREFIX_SORTED = 2  # [digits] so long that few ids begin so


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitQuery:
    """What is asked for; all that is given must hold.

    Attributes:
        name: of the target, whole.
        since_wall_ns, until_wall_ns: taken at or after the one, before the other.
        tag: has this tag; tagged: has a tag at all (True) or has none (False).
        prefix: its id begins so.
        text: words, each of which stands in the target's name or its command line; see ``searching``.
    """

    name: str | None = None
    trigger: Trigger | None = None
    since_wall_ns: int | None = None
    until_wall_ns: int | None = None
    tag: str | None = None
    tagged: bool | None = None
    prefix: str | None = None
    text: str | None = None


@dataclass(slots=True)
class _Conditions:
    sql: list[str] = field(default_factory=lambda: ["1"])
    values: list[object] = field(default_factory=list)

    def add(self, sql: str, *values: object) -> None:
        self.sql.append(sql)
        self.values += values

    def __str__(self) -> str:
        return " AND ".join(self.sql)


def find_rows(
    database: sqlite3.Connection,
    columns: str,
    query: CommitQuery,
    tagged: Iterable[CommitId],
    behind: Place | None,
    limit: int,
) -> list[tuple[object, ...]]:
    """At most ``limit`` rows, newest first.

    Args:
        tagged: ids that have the tag of ``query.tag``, or any where that is None.
        behind: (taken_wall_ns, id) of the row before them.
    """
    texts = None if query.text is None else _texts(database, query.name, wanted_words(query.text))
    if texts == [] or (query.prefix is not None and not _is_hexadecimal(query.prefix)):
        return []
    conditions = _conditions(query, behind)
    if query.tagged is False:
        conditions.add("id NOT IN (SELECT value FROM json_each(?))", json.dumps(list(tagged)))
    few_texts = texts is not None and len(texts) <= _TEXTS_MOST
    if texts is not None and not few_texts:
        conditions.add("+text IN (SELECT value FROM json_each(?))", json.dumps(texts))
    if query.tag is not None or query.tagged:
        if few_texts:
            conditions.add("+text IN (SELECT value FROM json_each(?))", json.dumps(texts))
        sql = (
            f"SELECT {columns} FROM (SELECT value AS tagged_id FROM json_each(?)) "
            "CROSS JOIN commits ON id = tagged_id "
            f"WHERE {conditions} {_BACKWARD} LIMIT ?"
        )
        return database.execute(sql, [json.dumps(sorted(set(tagged))), *conditions.values, limit]).fetchall()
    if texts is not None and few_texts:
        return _merged(database, columns, texts, conditions, limit)
    sql = f"SELECT {columns} FROM commits INDEXED BY {_way(query)} WHERE {conditions} {_BACKWARD} LIMIT ?"
    return database.execute(sql, [*conditions.values, limit]).fetchall()


def _conditions(query: CommitQuery, behind: Place | None) -> _Conditions:
    found = _Conditions()
    if query.name is not None:
        found.add("name = ?", as_sql_text(query.name))
    if query.trigger is not None:
        found.add("trigger = ?", str(query.trigger))
    if query.since_wall_ns is not None:
        found.add("taken_wall_ns >= ?", query.since_wall_ns)
    # Behind a place that lies before it, it says nothing more; SQLite might go by it, and walk to the place.
    if query.until_wall_ns is not None and (behind is None or int(behind[0]) >= query.until_wall_ns):
        found.add("taken_wall_ns < ?", query.until_wall_ns)
    if query.prefix:
        found.add("id >= ? AND id < ?", query.prefix, query.prefix + "g")
    if behind is not None:
        found.add("(taken_wall_ns, id) < (?, ?)", *behind)
    return found


def _way(query: CommitQuery) -> str:
    if query.prefix is not None and len(query.prefix) >= _PREFIX_SORTED:
        return "sqlite_autoindex_commits_1"
    match query.name is not None, query.trigger is not None:
        case True, True:
            return "commits_of_name_and_trigger"
        case True, False:
            return "commits_of_name"
        case False, True:
            return "commits_of_trigger"
    return "commits_by_time"


def _texts(database: sqlite3.Connection, name: str | None, words: list[str]) -> list[int]:
    conditions = _Conditions()
    if name is not None:
        conditions.add("name = ?", as_sql_text(name))
    for word in words:
        conditions.add("instr(words, ?)", word)
    return [row[0] for row in database.execute(f"SELECT id FROM texts WHERE {conditions}", conditions.values)]


def _merged(
    database: sqlite3.Connection, columns: str, texts: list[int], conditions: _Conditions, limit: int
) -> list[tuple[object, ...]]:
    # Only the places are merged; the rows are fetched for those that remain.
    one = (
        "SELECT * FROM (SELECT taken_wall_ns, id FROM commits INDEXED BY commits_of_text "
        f"WHERE text = ? AND {conditions} {_BACKWARD} LIMIT ?)"
    )
    values = [value for text in texts for value in (text, *conditions.values, limit)]
    merged = f"{' UNION ALL '.join([one] * len(texts))} {_BACKWARD} LIMIT ?"
    sql = f"SELECT {columns} FROM commits WHERE id IN (SELECT id FROM ({merged})) {_BACKWARD}"
    return database.execute(sql, [*values, limit]).fetchall()


def _is_hexadecimal(text: str) -> bool:
    return all(char in "0123456789abcdef" for char in text)

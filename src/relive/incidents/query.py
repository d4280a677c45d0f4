"""Which incidents a page is to hold, and the SQL that finds them."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from relive.model.incident import FailureKind
from relive.store.paging import Place
from relive.store.searching import as_sql_text, wanted_words

__all__ = ["IncidentOrder", "IncidentQuery", "find_numbers"]


class IncidentOrder(StrEnum):
    """By number, which never changes; or by the time it was seen last.

    By the latter, an incident that is seen again while pages are read moves to the front: it then comes on no later page,
    unless it came before, and never twice.
    """

    NUMBER = "number"
    LAST_SEEN = "last-seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentQuery:
    """What is asked for; all that is given must hold.

    Attributes:
        text: words, each of which stands in the summary or the exception; see ``searching``. Values of ``name=value`` in them
            are not searched: they may be secrets, which faces mask.
        since_wall_ns, until_wall_ns: between the first and the last time it was seen lies a moment at or after the one and
            before the other.
    """

    service: str | None = None
    life: str | None = None
    kind: FailureKind | None = None
    fingerprint: str | None = None
    text: str | None = None
    since_wall_ns: int | None = None
    until_wall_ns: int | None = None
    order: IncidentOrder = IncidentOrder.NUMBER


def find_numbers(
    database: sqlite3.Connection, columns: str, query: IncidentQuery, behind: Place | None, limit: int
) -> list[tuple[object, ...]]:
    """At most ``limit`` rows, newest first.

    Args:
        behind: (number,) or (last_seen_wall_ns, number) of the row before them, by the order.
    """
    sql: list[str] = ["service IS NOT NULL"]
    values: list[object] = []
    equal = {
        "service": query.service,
        "life": query.life,
        "kind": None if query.kind is None else str(query.kind),
        "fingerprint": query.fingerprint,
    }
    for name, value in equal.items():
        if value is not None:
            sql.append(f"{name} = ?")
            values.append(as_sql_text(value))
    for condition, wall_ns in (
        ("last_seen_wall_ns >= ?", query.since_wall_ns),
        ("seen_wall_ns < ?", query.until_wall_ns),
    ):
        if wall_ns is not None:
            sql.append(condition)
            values.append(wall_ns)
    words = wanted_words(query.text or "")
    by_number = query.order is IncidentOrder.NUMBER
    table = "incidents"
    if words:
        # Texts are a narrow table of their own, since all of it may have to be looked through.
        found = " AND ".join(["instr(text, ?)"] * len(words))
        if by_number:  # in its order, so that a frequent word is found soon
            table = "texts CROSS JOIN incidents USING (number)"
        sql.append(found if by_number else f"number IN (SELECT number FROM texts WHERE {found})")
        values += words
    order = ("number",) if by_number else ("last_seen_wall_ns", "number")
    if behind is not None:
        sql.append(f"({', '.join(order)}) < ({', '.join('?' * len(order))})")
        values += behind
    backward = ", ".join(f"{name} DESC" for name in order)
    statement = f"SELECT {columns} FROM {table} WHERE {' AND '.join(sql)} ORDER BY {backward} LIMIT ?"
    return database.execute(statement, [*values, limit]).fetchall()

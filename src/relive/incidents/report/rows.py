"""Rows of a query, from wherever the recorder put them: into the answer, into the event's data, or into ``rows`` events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from relive.recording.events import Event

__all__ = ["FetchedRows", "fetched"]


class FetchedRows(NamedTuple):
    """What a service got.

    Attributes:
        rows: those that were kept, each a list of packed values.
        total: how many there were, as far as known: some may lie in a file of their own.
    """

    rows: list[Any]
    total: int


def fetched(query: Event, later: Iterable[Event]) -> FetchedRows | None:
    """All rows of a query; None where nothing says that there were any.

    Args:
        later: ``rows`` events of this query.
    """
    answer = query.fields.get("answer")
    tellers: list[tuple[Mapping[str, Any], bytes]] = [(event.fields, event.data) for event in later]
    if isinstance(answer, dict):
        tellers.insert(0, (answer, query.data))
    rows: list[Any] = []
    total, was_told = 0, False
    for fields, data in tellers:
        own = _rows(fields, data)
        cut = fields.get("rows_cut")
        was_told = was_told or own is not None
        rows += own or []
        total += len(own or []) + (cut if isinstance(cut, int) and cut > 0 else 0)
    return FetchedRows(rows, total) if was_told else None


def _rows(fields: Mapping[str, Any], data: bytes) -> list[Any] | None:
    rows = fields.get("rows")
    if isinstance(rows, list):
        return rows
    if not data:
        return None
    try:
        found = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None

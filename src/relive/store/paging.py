"""Pages of a long list that stay right while the list changes.

A page ends with a *cursor*: the place, in the list's order, of its last row. The next page begins behind that place, whatever was
added or removed meanwhile. So a row that is there all the time, and whose place does not change, comes exactly once.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from relive.errors import UsageError

__all__ = ["Page", "Place", "check_limit", "page_of", "read_cursor"]

Row = TypeVar("Row")
Place = tuple[int | str, ...]  # what a list is ordered by, as of one row; no two rows have the same
_MOST = 512  # [characters] of a cursor


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list.

    Attributes:
        next: cursor that the next page begins behind; None: this is the last page.
    """

    items: list[Row]
    next: str | None


def page_of(order: str, found: list[Row], limit: int, place: Callable[[Row], Place]) -> Page[Row]:
    """The page of at most ``limit`` rows, given one row more where there is one.

    Args:
        order: name of the list and its order; a cursor of another one is refused by ``read_cursor``.
    """
    items = found[:limit]
    return Page(items, _cursor(order, place(items[-1])) if len(found) > limit else None)


def check_limit(limit: int) -> int:
    """The limit; raises UsageError where it is not at least 1."""
    if limit < 1:
        raise UsageError(
            "a page cannot be that short", cause=f"its limit is {limit}", remedy="ask for 1 row or more"
        )
    return limit


def read_cursor(order: str, cursor: str | None, kinds: tuple[type, ...]) -> Place | None:
    """The place behind which a page begins; None for the first page.

    Args:
        kinds: what the place consists of, each ``int`` (of 64 bits) or ``str``.

    Raises:
        UsageError: it is no cursor, or one of another list or order.
    """
    if cursor is None:
        return None
    try:
        if len(cursor) > _MOST:
            raise ValueError("it is too long")
        parts = _read(cursor)
        if not isinstance(parts, list) or parts[:1] != [order]:
            raise ValueError("it belongs to another list or another order")
        place = tuple(parts[1:])
        if len(place) != len(kinds) or not all(map(_fits, place, kinds)):
            raise ValueError("it names no place")
    except ValueError as error:
        raise UsageError(
            f"{cursor[:80]!r} is no cursor of this list",
            cause=str(error),
            remedy="give the one that came with the page before, or none for the first page",
        ) from None
    return place


def _read(cursor: str) -> Any:
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        return json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):  # of base64, UTF-8 or JSON, whose words tell a reader nothing
        raise ValueError("it was cut or changed, or never was one") from None


def _fits(value: object, kind: type) -> bool:
    if kind is int:
        return type(value) is int and -(1 << 63) <= value < 1 << 63
    # What is no Unicode cannot be compared by SQLite.
    return isinstance(value, str) and value.isascii()


def _cursor(order: str, place: Place) -> str:
    text = json.dumps([order, *place], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

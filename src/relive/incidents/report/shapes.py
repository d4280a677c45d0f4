"""What makes two things the same but for their values: routes of requests, and what steps of a timeline asked."""

from __future__ import annotations

import re

from relive.incidents.report.timeline import Row
from relive.recording.events import EventKind

__all__ = ["is_near_route", "route", "shape", "shape_of"]

# Quoted text, hexadecimal of some length that has a digit (ids, UUIDs), and numbers.
_VALUE = re.compile(
    r"'[^']*'|\"[^\"]*\"|\b(?=[a-f-]*[0-9])[0-9a-fA-F]{4,}(?:-[0-9a-fA-F]{2,})*\b|[0-9]+(?:\.[0-9]+)?"
)
_ONE_PART = 2  # pieces between slashes: the method before the first one counts
_LONG = 400  # [characters] that are looked at


def shape(row: Row) -> tuple[str, str]:
    """Equal for steps that ask the same with other values: ``GET http://rates/EUR?day=1`` and ``?day=2``."""
    return shape_of(row.kind, row.what)


def shape_of(kind: EventKind, what: str) -> tuple[str, str]:
    """The same of a kind and what was asked, in words."""
    what = what[:_LONG]
    if "://" in what:
        what = what.partition("?")[0]
    return kind.value, _VALUE.sub("#", what)


def route(method: str, target: str) -> str:
    """Method and path, without the query, numbers and ids in it as ``#``."""
    return f"{method} {_VALUE.sub('#', target.partition('?')[0][:_LONG])}"


def is_near_route(one: str, other: str) -> bool:
    """Two routes that differ in one part of the path at most, and not in the first of several: ``/price/tea`` and ``/price/milk``.

    A path of one part is near to others of one part, ``/tea`` to ``/milk``, but not to ``/``.
    """
    mine, theirs = one.split("/"), other.split("/")
    if len(mine) != len(theirs):
        return False
    differing = [at for at, (left, right) in enumerate(zip(mine, theirs, strict=True)) if left != right]
    if differing == [1]:
        return len(mine) == _ONE_PART and all((mine[1], theirs[1]))
    return not differing or (len(differing) == 1 and differing[0] > 1)

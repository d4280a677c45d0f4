"""Answers as trees of JSON: what lies at a path, with another value there, and where two of the same form differ.

Values are packed as the recorder has them (``relive_inprocess/relive_recorder/values.py``): one that was written plainly
becomes of the type that was recorded there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from relive.errors import ChangeUnfit
from relive.protocols.matching import PathStep, path_step

__all__ = ["differing_leaves", "packed_like", "with_value_at"]

_TEXTS = frozenset({"utf8", "decimal", "fraction", "uuid", "date", "time", "ipaddress", "path"})
_MOST = 200  # differences
_Path = tuple[PathStep, ...]


def packed_like(recorded: Any, given: Any) -> Any:
    """A value that was written plainly, of the type that a recorded one has; as it is where that has none of its own."""
    kind = _kind(recorded)
    if kind in _TEXTS and isinstance(given, str):
        return {"$": [kind, given]}
    if kind == "decimal" and isinstance(given, int | float) and not isinstance(given, bool):
        return {"$": [kind, str(given)]}
    if kind == "datetime" and isinstance(given, str):
        return {"$": [kind, given, 0]}
    if kind == "bytes" and isinstance(given, str):
        return {"$": ["utf8", given]}
    if type(recorded) is float and type(given) is int:
        return float(given)
    if isinstance(recorded, list) and isinstance(given, list) and recorded:
        return [packed_like(recorded[min(at, len(recorded) - 1)], one) for at, one in enumerate(given)]
    return given


def _kind(value: Any) -> str | None:
    tag = value.get("$") if isinstance(value, dict) and len(value) == 1 else None
    return tag[0] if isinstance(tag, list) and tag and isinstance(tag[0], str) else None


def with_value_at(
    tree: Any, path: Sequence[PathStep], value: Any, *, written: str, columns: Sequence[str] = ()
) -> Any:
    """The tree with another value at a path; ChangeUnfit where nothing is there.

    Args:
        columns: names for the second step, of rows.
    """
    return _with(tree, tuple(path), value, "$", written, columns)


def _with(tree: Any, path: _Path, value: Any, at: str, written: str, columns: Sequence[str]) -> Any:
    if not path:
        return packed_like(tree, value)
    step, rest = path[0], path[1:]
    if isinstance(tree, list) and isinstance(step, str) and step in columns:
        step = columns.index(step)
    if isinstance(tree, list) and isinstance(step, int) and step < len(tree):
        changed = _with(tree[step], rest, value, f"{at}[{step}]", written, columns)
        return [*tree[:step], changed, *tree[step + 1 :]]
    if (
        isinstance(tree, dict)
        and isinstance(step, str)
        and _kind(tree) is None
        and (step in tree or not rest)
    ):
        return {**tree, step: _with(tree.get(step), rest, value, at + path_step(step), written, ())}
    there = f"{len(tree)} items" if isinstance(tree, list) else json.dumps(tree, default=str)[:120]
    name = f"[{step}]" if isinstance(step, int) else path_step(str(step))
    raise ChangeUnfit(
        f"{written[:120]!r} cannot be changed",
        cause=f"there is no {at}{name} in the recorded answer: {at} is {there}",
        remedy="`relive what-if INCIDENT` shows what was answered"
        + (f"; columns are {', '.join(columns)}" if columns else ""),
    )


def differing_leaves(one: Any, other: Any) -> list[tuple[_Path, Any]] | None:
    """(path, the other's value) of each leaf in which two trees differ; None where their forms are not the same."""
    found: list[tuple[_Path, Any]] = []
    for path, value in _leaves(one, other, ()):
        if path is None:
            return None
        found.append((path, value))
        if len(found) > _MOST:
            return None
    return found


def _leaves(one: Any, other: Any, at: _Path) -> Iterator[tuple[_Path | None, Any]]:
    if isinstance(one, list) and isinstance(other, list):
        if len(one) != len(other):
            yield None, None
            return
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _leaves(left, right, (*at, index))
    elif isinstance(one, dict) and isinstance(other, dict) and _kind(one) is None and _kind(other) is None:
        if one.keys() != other.keys():
            yield None, None
            return
        for name in one:
            yield from _leaves(one[name], other[name], (*at, name))
    elif one != other or type(one) is not type(other):
        yield at, other

"""Where two JSON values differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from relive.protocols.matching import PathStep, path_step, path_steps

__all__ = ["DifferingPart", "first_difference", "first_differing_part", "is_equal", "short"]


@dataclass(frozen=True, slots=True)
class DifferingPart:
    """A part of two JSON values that differs.

    Attributes:
        path: as ``--ignore`` takes it, such as ``$.items[0].id``.
        one, other: what stands there, as texts; None: nothing does.
        values: both as they are, where both are there.
    """

    path: str
    one: str | None
    other: str | None
    values: tuple[Any, Any] | None = None


def is_equal(one: Any, other: Any) -> bool:
    """Of one type and equal: 1 is neither True nor 1.0."""
    return type(one) is type(other) and bool(one == other)


def first_difference(
    one: Any,
    other: Any,
    ignore: Collection[str] = (),
    is_same: Callable[[Any, Any], bool] = is_equal,
) -> str | None:
    """Where two JSON values first differ, in order of keys and indexes; None if they are equal but for ``ignore``.

    Args:
        ignore: paths such as ``$.items[*].id``, as ``protocols.matching`` reads them; ``$`` is all of it.
        is_same: whether two values, of which not both are objects or lists of one length, count as equal.
    """
    found = first_differing_part(one, other, ignore, is_same)
    if found is None:
        return None
    left, right = ("nothing" if text is None else text for text in (found.one, found.other))
    return f"{found.path}: {left} was recorded, {right} came"


def first_differing_part(
    one: Any,
    other: Any,
    ignore: Collection[str] = (),
    is_same: Callable[[Any, Any], bool] = is_equal,
) -> DifferingPart | None:
    """As ``first_difference``, as a value."""
    return _first_part(one, other, (), [path_steps(path) for path in ignore], is_same)


def _first_part(
    one: Any,
    other: Any,
    place: tuple[str | int, ...],
    ignore: Sequence[Sequence[PathStep]],
    is_same: Callable[[Any, Any], bool],
) -> DifferingPart | None:
    if any(_leads_to(steps, place) for steps in ignore):
        return None
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            below = (*place, key)
            if key in one and key in other:
                found = _first_part(one[key], other[key], below, ignore, is_same)
            elif any(_leads_to(steps, below) for steps in ignore):
                continue
            else:
                left, right = (short(value[key]) if key in value else None for value in (one, other))
                found = DifferingPart(_path(below), left, right)
            if found is not None:
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            found = _first_part(left, right, (*place, index), ignore, is_same)
            if found is not None:
                return found
        return None
    if is_same(one, other):
        return None
    return DifferingPart(_path(place), short(one), short(other), (one, other))


def _leads_to(steps: Sequence[PathStep], place: tuple[str | int, ...]) -> bool:
    return len(steps) == len(place) and all(map(_is_step, steps, place))


def _is_step(step: PathStep, to: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(to, str) and (to == step or fnmatchcase(to, step))
    return isinstance(to, int) and step in (None, to)


def _path(place: tuple[str | int, ...]) -> str:
    """As ``--ignore`` takes it."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else path_step(step) for step in place)


def short(value: object) -> str:
    """As text of 60 characters at most, in quotes."""
    text = value if isinstance(value, str) else json.dumps(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")

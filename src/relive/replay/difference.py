"""Where two JSON values differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

__all__ = ["first_difference", "is_equal", "short"]


def is_equal(one: Any, other: Any) -> bool:
    """Of one type and equal: 1 is neither True nor 1.0."""
    return type(one) is type(other) and bool(one == other)


def first_difference(
    one: Any,
    other: Any,
    ignore: Collection[str] = (),
    path: str = "$",
    is_same: Callable[[Any, Any], bool] = is_equal,
) -> str | None:
    """Where two JSON values first differ, in order of keys and indexes; None if they are equal but for ``ignore``.

    Args:
        is_same: whether two values, of which not both are objects or lists of one length, count as equal.
    """
    if path in ignore:
        return None
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            below = f"{path}.{key}"
            if below in ignore:
                continue
            if key not in one or key not in other:
                return f"{below}: {'nothing' if key not in one else short(one[key])} was recorded, " + (
                    f"{'nothing' if key not in other else short(other[key])} came"
                )
            found = first_difference(one[key], other[key], ignore, below, is_same)
            if found is not None:
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            found = first_difference(left, right, ignore, f"{path}[{index}]", is_same)
            if found is not None:
                return found
        return None
    if is_same(one, other):
        return None
    return f"{path}: {short(one)} was recorded, {short(other)} came"


def short(value: object) -> str:
    """As text of 60 characters at most, in quotes."""
    text = value if isinstance(value, str) else json.dumps(value)
    return repr(text if len(text) <= 60 else text[:57] + "...")

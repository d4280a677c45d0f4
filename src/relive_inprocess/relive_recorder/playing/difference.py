"""How two trees of JSON values differ: the paths of the parts that are not equal."""

from __future__ import annotations

import itertools
from typing import Any, Iterator, List

__all__ = ["differing"]

_MOST = 20
_MISSING = object()


def differing(one: Any, other: Any) -> List[str]:
    """Paths such as ``$.parameters[0]``, at most 20, in order of keys and indexes; empty when they are equal."""
    return list(itertools.islice(_paths(one, other, "$"), _MOST))


def _paths(one: Any, other: Any, path: str) -> Iterator[str]:
    if type(one) is dict and type(other) is dict:
        for key in sorted(set(one) | set(other)):
            yield from _paths(one.get(key, _MISSING), other.get(key, _MISSING), f"{path}.{key}")
    elif type(one) is list and type(other) is list and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other)):
            yield from _paths(left, right, f"{path}[{index}]")
    elif type(one) is not type(other) or one != other:
        yield path

"""Values that only came to be met on another path first: they are no changes.

Each object of a process is told once, on the path on which it is met first; on any other it is ``the same as`` that one. Where the
first path no longer leads to it, another becomes the first, though the object is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["with_moved_objects"]

_SAME = "the same as "
_BEGINS = (".", "[", "{")
_MOST = 1000  # objects that moved: beyond, the search for what is in them takes too long


def with_moved_objects(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Both without what differs only since an object is met on another path first.

    What was an alias of ``Q`` and is told itself now is compared with what stood at ``Q``; and the other way round.

    Args:
        before, after: texts by path, each object once. They may lack what is equal in both.
    """
    old, new = dict(before), dict(after)
    there, back = _moves(before, after), _moves(after, before)
    if len(there) + len(back) > _MOST:
        return old, new
    for path, first in there.items():
        _transfer(old, before, first, path, after)
    for path, first in back.items():
        _transfer(new, after, first, path, before)
    renamed = {first: path for path, first in there.items()} | back
    for path, text in old.items():
        if path in new and text != new[path] and _is_renamed(text, new[path], renamed):
            old[path] = new[path]
    return old, new


def _moves(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """By path what it is an alias of in one, where the other tells the object itself there and not at that place."""
    found = {}
    for path, text in one.items():
        told = other.get(path)
        if told is None or not text.startswith(_SAME) or told.startswith(_SAME):
            continue
        first = text.removeprefix(_SAME)
        if first in one and other.get(first, "") != one[first]:
            found[path] = first
    return found


def _transfer(
    texts: dict[str, str], known: Mapping[str, str], first: str, path: str, others: Mapping[str, str]
) -> None:
    """Put what is in ``first`` below ``path``; what is no longer below ``first`` in the other state goes there."""
    texts[path] = known[first]
    for inner in _below(known, first):
        texts[path + inner.removeprefix(first)] = known[inner]
        if inner not in others:
            texts.pop(inner, None)


def _below(texts: Mapping[str, str], first: str) -> list[str]:
    return [one for one in texts if one.startswith(first) and one[len(first) :].startswith(_BEGINS)]


def _is_renamed(text: str, other: str, renamed: Mapping[str, str]) -> bool:
    """Both are aliases of one object, which has another first path now."""
    if not (text.startswith(_SAME) and other.startswith(_SAME)):
        return False
    was, now = text.removeprefix(_SAME), other.removeprefix(_SAME)
    beginnings = (was[:length] for length in range(1, len(was) + 1))
    return any(renamed[one] + was.removeprefix(one) == now for one in beginnings if one in renamed)

"""Parts of a state in words, for every face that shows text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from relive.inspection.evaluated import EvalOutcome, Evaluated
from relive.inspection.state import Descriptor, Waiting

if TYPE_CHECKING:
    from relive.inspection.state_changes import FieldChange

__all__ = ["change_words", "descriptor_words", "value_change_lines", "value_lines", "waiting_words"]

_WITHIN = 5  # values that are listed of one that came or went with all that is in it
_ENTRIES = 3  # that are listed of those that came to one container or went from it

_ENTRY = re.compile(r"""(.+)[\[{](?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\[\]{}]*)[\]}]""", re.DOTALL)


def descriptor_words(one: Descriptor) -> str:
    """A descriptor on one line."""
    words = [one.kind, one.name, f"-> {one.peer}" if one.peer else "", one.state or "", one.access]
    if one.offset is not None and one.kind in ("file", "memfd"):
        words.append(f"at {one.offset}" + (f" of {one.size}" if one.size is not None else ""))
    words += [f"{one.unread} B unread"] if one.unread else []
    words += [f"{one.unsent} B unsent"] if one.unsent else []
    words += [f"watches {', '.join(map(str, one.watches))}"] if one.watches else []
    words += [f"shared with {', '.join(one.shared_with)}"] if one.shared_with else []
    return "  ".join(word for word in words if word)


def waiting_words(one: Waiting) -> str:
    """Who waits for whom, on one line."""
    holder = f"thread {one.holder_thread}" if one.holder_thread is not None else f"process {one.holder}"
    return f"thread {one.tid} of {one.pid} waits for the {one.what}, which {holder} holds"


def change_words(one: FieldChange) -> str:
    """A change on one line."""
    if one.before is None:
        return f"{one.name}: added {one.after}"
    if one.after is None:
        return f"{one.name}: gone, was {one.before}"
    return f"{one.name}: {one.before} -> {one.after}"


def value_change_lines(changes: Sequence[FieldChange], most: int, elsewhere: str) -> list[str]:
    """Changed values in their order, ``most`` lines; of one that came or went, a few of those in it, and of many that did in one
    container the first few: a list that grows all the time does not hide the flag beside it.

    Args:
        elsewhere: where all of them are, which is said with how many are left out.
    """
    tops = _came_or_went_with(changes)
    within, shown = Counter(tops.values()), list[str]()
    entries, listed = defaultdict[str, set[str]](set), Counter[str]()
    for one in changes:
        if one.before is None or one.after is None:
            top = tops.get(one.name, one.name)
            beside = entries[_container(top)]
            if len(beside) == _ENTRIES and top not in beside:
                continue
            beside.add(top)
            listed[top] += one.name != top
            if listed[top] > _WITHIN:
                continue
        count = within[one.name]
        shown.append(change_words(one) + (f" ({count} values in it)" if count > _WITHIN else ""))
    left = len(changes) - len(shown[:most])
    return [*shown[:most], *([f"and {left} more ({elsewhere})"] if left else [])]


def _came_or_went_with(changes: Sequence[FieldChange]) -> dict[str, str]:
    """By the path of a value that of the outermost one with which it came or went."""
    whole = {one.name for one in changes if one.before is None or one.after is None}
    return {one: top for one in whole if (top := _outermost(one, whole)) is not None}


def _container(path: str) -> str:
    """What a value is an entry of; of an attribute, itself: an object does not grow by many."""
    entry = _ENTRY.fullmatch(path)
    return entry[1] if entry is not None else path


def _outermost(path: str, among: Collection[str]) -> str | None:
    ends = (at for at, sign in enumerate(path) if sign in ".[{")
    return next((path[:end] for end in ends if path[:end] in among), None)


def value_lines(found: Evaluated) -> list[str]:
    """What came of an expression."""
    match found.outcome:
        case EvalOutcome.VALUE:
            parts = [f"{one.path or found.type} = {one.text}" for one in found.parts]
            return [
                found.text,
                *parts,
                *(["... (there is more)"] if found.cut else []),
                *_referrer_lines(found),
            ]
        case EvalOutcome.RAISED:
            return [found.traceback.rstrip() or f"{found.type}: {found.text}"]
        case _:
            return [f"There is no value: {found.text}."]


def _referrer_lines(found: Evaluated) -> list[str]:
    if not found.referrers:
        return []
    more = [f"  and {found.referrers_left_out} more"] if found.referrers_left_out else []
    return ["referred to by", *(f"  {one}" for one in found.referrers), *more]

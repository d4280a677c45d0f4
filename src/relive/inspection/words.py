"""Parts of a state in words, for every face that shows text."""

from __future__ import annotations

from relive.inspection.evaluated import EvalOutcome, Evaluated
from relive.inspection.state import Descriptor, Waiting

__all__ = ["descriptor_words", "value_lines", "waiting_words"]


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

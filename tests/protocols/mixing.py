"""Conversations put together at random from questions with their answers: waited for or not, answered in pieces, interrupted."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from relive.recording.dialogues import Way

__all__ = ["conversations"]

_ALL, _HALVES, _ONE, _UNASKED = (
    "all answers",
    "all answers, each in two pieces",
    "one answer",
    "something unasked",
)


def conversations(
    pairs: Sequence[tuple[bytes, bytes]], unasked: bytes | None = None
) -> st.SearchStrategy[list[tuple[Way, bytes]]]:
    """What is said both ways; the last questions may be without answers."""
    does: list[int | str] = [*range(len(pairs)), _ALL, _ALL, _HALVES, _ONE]
    if unasked is not None:
        does.append(_UNASKED)
    return st.lists(st.sampled_from(does), max_size=12).map(lambda steps: _said(pairs, unasked or b"", steps))


def _said(
    pairs: Sequence[tuple[bytes, bytes]], unasked: bytes, steps: Sequence[int | str]
) -> list[tuple[Way, bytes]]:
    said: list[tuple[Way, bytes]] = []
    waiting: list[bytes] = []
    for step in steps:
        if isinstance(step, int):
            said.append((Way.UP, pairs[step][0]))
            waiting.append(pairs[step][1])
        elif step == _UNASKED:
            said.append((Way.DOWN, unasked))
        else:
            count = 1 if step == _ONE else len(waiting)
            for answer in waiting[:count]:
                half = len(answer) // 2 if step == _HALVES else 0
                said += [(Way.DOWN, part) for part in (answer[:half], answer[half:]) if part]
            del waiting[:count]
    return said

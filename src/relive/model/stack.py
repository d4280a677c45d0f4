"""Stacks in what a service printed: Python tracebacks, found in its log lines."""

from __future__ import annotations

import re

from relive.model.capsule import INPROCESS_DIRECTORY
from relive.model.outcome import Stack

__all__ = ["find_stack", "find_stacks"]

_RECORDER = f"{INPROCESS_DIRECTORY}/"
_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_MARGIN = re.compile(r"^[\s|+-]*")


def find_stack(lines: list[str]) -> Stack | None:
    """The first of ``find_stacks``, or None."""
    return next(iter(find_stacks(lines)), None)


def find_stacks(lines: list[str]) -> list[Stack]:
    """Python tracebacks in the lines, in order; of chained ones only the last, which is what came out.

    Margins of exception groups are taken off.
    """
    found: list[Stack] = []
    start, is_chained = 0, False
    while True:
        stack, end = _read_stack(lines, start)
        if stack is None:
            return found
        if is_chained:
            found.pop()
        found.append(stack)
        # A long message may stand between an exception and the words that chain the next to it.
        following = next((index for index in range(end, len(lines)) if _HEAD in lines[index]), end)
        is_chained = any(words in line for line in lines[end:following] for words in _CHAINED)
        start = end


def _read_stack(lines: list[str], begin: int) -> tuple[Stack | None, int]:
    """The next whole traceback from line ``begin`` on, and the number of the line behind it."""
    start = next((index for index in range(begin, len(lines)) if _HEAD in lines[index]), None)
    if start is None:
        return None, len(lines)
    frames: list[tuple[str, int, str]] = []
    text = [_HEAD]
    for index in range(start + 1, len(lines)):
        bare = _strip_margin(lines[index])
        if _HEAD in bare:  # the one before was torn off
            frames, text = [], [_HEAD]
            continue
        text.append(bare)
        match = _FRAME.match(bare)
        if match is not None and match["file"].startswith(_RECORDER):
            continue  # what it does between the service's frames depends on whether it records or replays
        if match is not None:
            frames.append((match["file"], int(match["line"]), match["function"]))
        elif bare and not bare.startswith(" "):
            return Stack(exception=bare, frames=frames, text=text), index + 1
    return None, len(lines)


def _strip_margin(line: str) -> str:
    if "|" not in (_MARGIN.match(line) or [""])[0]:
        return line.rstrip()
    return line.split("|", 1)[1].removeprefix(" ").rstrip()

"""Stacks in what a service printed, found in its log lines: Python tracebacks here, other languages in ``stackforms``."""

from __future__ import annotations

import re

from relive.model.capsule import INPROCESS_DIRECTORY
from relive.model.outcome import Stack
from relive.model.stackforms import read_form

__all__ = ["find_stack", "find_stacks", "last_stack", "placed_stacks"]

_RECORDER = f"{INPROCESS_DIRECTORY}/"
_HEAD = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9}), in (?P<function>.+)$')
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_LONG = 1024  # characters of a line that are looked at for stacks of other languages
_MARGIN = re.compile(r"^[\s|+-]*")


def find_stack(lines: list[str]) -> Stack | None:
    """The first of ``find_stacks``, or None."""
    return next(iter(find_stacks(lines)), None)


def last_stack(lines: list[str]) -> Stack | None:
    """The last of ``find_stacks``, or None: what follows a request's other lines belongs to its end."""
    return next(reversed(find_stacks(lines)), None)


def find_stacks(lines: list[str]) -> list[Stack]:
    """Stacks in the lines, in order; of chained ones only the one that came out (Python) or came first (others).

    Margins of exception groups are taken off.
    """
    return [stack for _, _, stack in placed_stacks(lines)]


def placed_stacks(lines: list[str]) -> list[tuple[int, int, Stack]]:
    """``find_stacks``, each with the place of its first line and that behind its last."""
    found = _find_tracebacks(lines)
    # A log is anybody's text, and patterns take their time over long lines.
    lines = [line[:_LONG] for line in lines]
    covered = [(begin, end) for begin, end, _ in found]
    place = 0
    while place < len(lines):
        inside = next((end for begin, end in covered if begin <= place < end), None)
        other = read_form(lines, place) if inside is None else None
        if other is not None:
            stack, end = other
            found.append((place, end, stack))
            place = end
        else:
            place = inside if inside is not None else place + 1
    return sorted(found, key=lambda one: one[0])


def _find_tracebacks(lines: list[str]) -> list[tuple[int, int, Stack]]:
    """Python's, each with the place of its first line and that behind its last."""
    found: list[tuple[int, int, Stack]] = []
    start, is_chained = 0, False
    while True:
        stack, end = _read_stack(lines, start)
        if stack is None:
            return found
        begin = next(index for index in range(start, len(lines)) if _HEAD in lines[index])
        if is_chained:
            begin = found.pop()[0]
        found.append((begin, end, stack))
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
    lead = _lead(lines, start)
    for index in range(start + 1, len(lines)):
        bare = _strip_margin(lines[index]).removeprefix(lead)
        if _HEAD in bare:  # the one before was torn off
            frames, text = [], [_HEAD]
            lead = _lead(lines, index)
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


def _lead(lines: list[str], head: int) -> str:
    """What a logger that indents or marks each line of a message, as Twisted's does, puts before those of this traceback."""
    lead = _strip_margin(lines[head]).partition(_HEAD)[0]
    return lead if lines[head + 1 :] and _strip_margin(lines[head + 1]).startswith(f"{lead} ") else ""


def _strip_margin(line: str) -> str:
    if "|" not in (_MARGIN.match(line) or [""])[0]:
        return line.rstrip()
    return line.split("|", 1)[1].removeprefix(" ").rstrip()

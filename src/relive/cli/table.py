"""How a table looks on a terminal: columns two blanks apart, cut to its width; the last one goes on below itself.

Written out here, since every short command shows a table, and a library for it takes longer to import than they take in all.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Sequence

__all__ = ["table_lines"]

# Columns set to the right.
_NUMBERS = frozenset({"incident", "pid", "times", "pause", "durable", "size", "at ms", "lane", "took"})
_GAP = 2  # [characters]
_LAST_LEAST = 16  # [characters] before the last column is narrower than that, others are cut
_LEAST = 4  # [characters] a column that is cut keeps
_BOLD, _RED, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[0m"


def table_lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    bad: Collection[int] = (),
    coloured: bool = False,
) -> Iterator[str]:
    """The lines of a table, its head first.

    Args:
        width: characters in a line; wide ones (CJK) count twice.
        bad: numbers, from 0, of the rows that are red where it is coloured.
    """
    texts = [[*(cell.replace("\n", " ") for cell in row[:-1]), row[-1]] for row in (columns, *rows)]
    widths = _widths(texts, width)
    for number, row in enumerate(texts, -1):
        style = (_BOLD if number < 0 else _RED if number in bad else "") if coloured else ""
        for line in _row_lines(columns, row, widths):
            yield f"{style}{line}{_PLAIN}" if style else line


def _widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Of each column. The last gives way first, then whichever is the widest."""
    found = [max(max(map(_cells, cell.split("\n"))) for cell in column) for column in zip(*rows, strict=True)]
    excess = sum(found) + _GAP * (len(found) - 1) - width
    while excess > 0:
        least = [_LEAST] * (len(found) - 1) + [_LAST_LEAST]
        spare = [one - floor for one, floor in zip(found, least, strict=True)]
        widest = len(found) - 1 if spare[-1] > 0 else max(range(len(found)), key=spare.__getitem__)
        if spare[widest] <= 0:
            break  # narrower than any use: the terminal folds
        given = min(excess, spare[widest]) if widest == len(found) - 1 else 1
        found[widest] -= given
        excess -= given
    return found


def _row_lines(columns: Sequence[str], row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    head = [
        _set(_cut(cell, width), width, right=name in _NUMBERS)
        for name, cell, width in zip(columns[:-1], row[:-1], widths[:-1], strict=True)
    ]
    last = _folded(row[-1], widths[-1])
    begin = (" " * _GAP).join([*head, ""])
    for number, line in enumerate(last):
        text = _set(line, widths[-1], right=columns[-1] in _NUMBERS)
        yield f"{begin if number == 0 else ' ' * _cells(begin)}{text}".rstrip()


def _set(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - _cells(text))
    return blanks + text if right else text + blanks


def _cut(text: str, width: int) -> str:
    if _cells(text) <= width:
        return text
    return _beginning(text, width - 1) + "…"


def _beginning(text: str, width: int) -> str:
    """As much of it as fits, one character at least."""
    taken = 0
    for index, char in enumerate(text):
        taken += _cells(char)
        if taken > width:
            return text[: max(index, 1)]
    return text


def _folded(text: str, width: int) -> list[str]:
    """In lines of at most that width, between words where there are any."""
    lines = []
    for line in text.split("\n"):
        rest = line
        while _cells(rest) > width:
            part = _beginning(rest, width)
            blank = rest.rfind(" ", 0, len(part) + 1)
            end = blank if blank > 0 else len(part)
            lines.append(rest[:end])
            rest = rest[end:].removeprefix(" ")
        lines.append(rest)
    return lines


def _cells(text: str) -> int:
    """How many places it takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )

"""What is looked for in memory: text, bytes in hexadecimal (``hex:``), or a regular expression over bytes (``re:``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from relive.errors import UsageError

__all__ = ["LONGEST_MATCH", "Pattern", "parse_pattern"]

LONGEST_MATCH = 4096  # [bytes] that a regular expression may match; what is longer may be told in two parts
_HEX, _REGEX = "hex:", "re:"


@dataclass(frozen=True, slots=True)
class Pattern:
    """``overlap``: bytes by which parts that are searched one after the other must overlap."""

    expression: re.Pattern[bytes]
    overlap: int

    def matches(self, data: bytes) -> Iterator[tuple[int, int]]:
        """(begin, end) of each match that is not empty, in order; they do not overlap."""
        return (found.span() for found in self.expression.finditer(data) if found.end() > found.start())


def parse_pattern(text: str) -> Pattern:
    """The pattern that a text means.

    Raises:
        UsageError: it is empty, no hexadecimal number, or no regular expression.
    """
    if text.startswith(_REGEX):
        try:
            expression = re.compile(text.removeprefix(_REGEX).encode("utf-8", "surrogateescape"))
        except (re.error, OverflowError, RecursionError) as error:
            raise _unfit(text, f"no regular expression: {error}") from error
        if not expression.pattern:
            raise _unfit(text, "the expression is empty")
        return Pattern(expression, LONGEST_MATCH)
    if text.startswith(_HEX):
        try:
            wanted = bytes.fromhex(text.removeprefix(_HEX))
        except ValueError as error:
            raise _unfit(text, f"no bytes in hexadecimal: {error}") from error
    else:
        wanted = text.encode("utf-8", "surrogateescape")
    if not wanted:
        raise _unfit(text, "nothing is to be found")
    return Pattern(re.compile(re.escape(wanted), re.DOTALL), len(wanted) - 1)


def _unfit(text: str, cause: str) -> UsageError:
    return UsageError(
        f"{text!r} cannot be looked for in memory",
        cause=cause,
        remedy="write a text, hex:0011ff, or re:EXPRESSION (of Python's re, over bytes)",
    )

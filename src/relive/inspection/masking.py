"""Secrets taken out of what a Python process said of itself: by the name that a value has, and by what it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from relive.incidents.report.masking import MASK, Mask
from relive.inspection.evaluated import ValuePart

__all__ = ["masked_lines", "masked_names", "masked_parts", "masked_text"]

_NAMED_LINE = re.compile(r"((?:->)?\s*(\S+) = )(.+)")  # of ``args``, and in the program's text
_ERROR = "***"  # how pdb begins what is an error
_LAST_NAME = re.compile(r"\w[\w.-]*(?=\W*\Z)")


def masked_text(mask: Mask, path: str, text: str) -> str:
    """A representation; the last name of its path says what it is."""
    name = _LAST_NAME.search(path)
    if name is not None and text not in ("None", "True", "False") and mask.is_secret_name(name[0]):
        return MASK
    return mask.sentence(text)


def masked_lines(mask: Mask, command: str, text: str) -> str:
    """What a debugger said to a command, whose last name says what the values are: ``p account.password``."""
    return "\n".join(_masked_line(mask, command, line) for line in text.split("\n"))


def _masked_line(mask: Mask, command: str, line: str) -> str:
    named = _NAMED_LINE.fullmatch(line)
    if named is not None:
        return f"{named[1]}{masked_text(mask, named[2], named[3])}"
    return mask.sentence(line) if not line or line.startswith(_ERROR) else masked_text(mask, command, line)


def masked_parts(mask: Mask, parts: Iterable[Any]) -> list[ValuePart]:
    """Pairs of path and text."""
    return [ValuePart(path=mask.sentence(path), text=masked_text(mask, path, text)) for path, text in parts]


def masked_names(mask: Mask, values: Mapping[str, str]) -> dict[str, str]:
    """Representations by name or path."""
    return {mask.sentence(name): masked_text(mask, name, text) for name, text in values.items()}

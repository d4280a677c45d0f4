"""Reading a unit's files as systemd.syntax(7) has them: assignments of a section, later files after earlier ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Assignments", "ExecStart", "read_command", "read_service"]

_PREFIXES = re.compile(r"[-@:+!|]*")
_SERVICE = "Service"


@dataclass(frozen=True, slots=True)
class Assignments:
    """The assignments of ``[Service]`` in their order, an empty one included: in lists it takes back all before it."""

    pairs: list[tuple[str, str]]

    def last(self, name: str) -> str:
        """The value of a setting that has one; empty where it has none."""
        return next((value for key, value in reversed(self.pairs) if key == name), "")

    def all(self, name: str) -> list[str]:
        """The values of a setting that is a list."""
        values: list[str] = []
        for key, value in self.pairs:
            if key == name:
                values = [*values, value] if value else []
        return values

    def is_set(self, name: str) -> bool:
        """It has a value other than no."""
        values = self.all(name)
        return bool(values) and values[-1].lower() not in ("no", "false", "off", "0", "n", "f")


@dataclass(frozen=True, slots=True)
class ExecStart:
    """An ``ExecStart=`` as written.

    Attributes:
        prefixes: special characters before the program, such as "-".
        words: the program and its arguments, with quotes, variables and specifiers, for systemd to read.
        program: the first of them, without quotes.
    """

    prefixes: str
    words: str
    program: str


def read_service(files: Iterable[str]) -> Assignments:
    """``[Service]`` of a unit's file and its drop-ins, whose texts come in the order in which systemd reads them."""
    pairs = []
    for text in files:
        section = ""
        for line in _joined(text):
            if line.startswith("[") and line.endswith("]"):
                section = line[1:-1]
            elif section == _SERVICE and "=" in line:
                name, _, value = line.partition("=")
                pairs.append((name.strip(), value.strip()))
    return Assignments(pairs)


def _joined(text: str) -> Iterable[str]:
    """Lines without comments; one that ends with a backslash goes on in the next."""
    begun = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("#", ";")) or (not stripped and not begun):
            continue
        if stripped.endswith("\\"):
            begun += stripped[:-1] + " "
            continue
        yield (begun + stripped).strip()
        begun = ""
    if begun.strip():
        yield begun.strip()


def read_command(value: str) -> ExecStart:
    """Take an ``ExecStart=`` apart."""
    found = _PREFIXES.match(value)
    prefixes = found[0] if found is not None else ""
    words = value[len(prefixes) :].strip()
    return ExecStart(prefixes, words, _first_of(words))


def _first_of(words: str) -> str:
    if words[:1] in ("'", '"'):
        return words[1:].partition(words[0])[0]
    return next(iter(words.split()), "")

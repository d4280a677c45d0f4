"""For which columns the values of a statement are: ``INSERT INTO users (name, password) VALUES (?, ?)``, ``password = 'text'``.

Statements are not parsed, only read word by word; where one is not understood, its values are for no column.
"""

import re
from typing import Callable, FrozenSet, Iterator, List, Tuple

__all__ = ["secret_parameters", "without_literals"]

_LONGEST = 65536  # [characters] of longer statements nothing is told
# A text, a name in quotes, a word, a parameter, a number, a sign; comments are passed over.
_WORD = re.compile(
    r"--[^\n]*|/\*.*?\*/|[eEnN]?(?P<text>'(?:[^'\\]|''|\\.)*')|(?P<quoted>\"[^\"]+\"|`[^`]+`|\[\w+\])|"
    r"(?P<parameter>\?\d*|%s|\$\d+|%\(\w+\)s|(?<!:):[A-Za-z_]\w*)|(?P<name>[A-Za-z_]\w*)|\d[\d.]*|(?P<sign>::|<>|!=|[=(),.;]|\S)",
    re.DOTALL,
)
_EQUAL = frozenset(("=", "<>", "!=", "LIKE", "IS"))


class _Value:
    """A text or a parameter of a statement. ``number``: of parameters, from 0; -1 otherwise."""

    __slots__ = ("column", "end", "number", "start")

    def __init__(self, column: str, start: int, end: int, number: int) -> None:
        self.column = column
        self.start = start
        self.end = end
        self.number = number


def secret_parameters(statement: str, is_secret: Callable[[str], bool]) -> FrozenSet[int]:
    """Numbers, from 0, of the positional parameters that are for columns of such names."""
    found = (one.number for one in _values(statement) if one.number >= 0 and is_secret(one.column))
    return frozenset(found)


def without_literals(statement: str, is_secret: Callable[[str], bool], learn: Callable[[str], str]) -> str:
    """The statement, with ``learn`` of each text in quotes that is for a column of such a name in its place."""
    parts: List[str] = []
    done = 0
    for one in _values(statement):
        if one.number < 0 and one.end - one.start > 2 and is_secret(one.column):
            text = statement[one.start + 1 : one.end - 1].replace("''", "'")
            parts += (statement[done : one.start + 1], learn(text))
            done = one.end - 1
    return "".join(parts) + statement[done:] if parts else statement


def _values(statement: str) -> Iterator[_Value]:
    """Those that are for a column."""
    if len(statement) > _LONGEST:
        return
    reading = _Reading()
    for found in _WORD.finditer(statement):
        kind = found.lastgroup
        if kind is None:
            continue
        if kind in ("name", "quoted"):
            word = found[0].strip('"`[]')
            reading.name(word, kind == "name")
        elif kind == "sign":
            reading.sign(found[0])
        else:
            column, number = reading.value(found["parameter"])
            if column:
                start, end = found.span(kind)
                yield _Value(column, start, end, number)


class _Reading:
    """Where we are in a statement."""

    def __init__(self) -> None:
        self._depth = 0
        self._named = ""  # the last name, and what stood behind it
        self._behind = ""
        self._columns: List[str] = []  # of INSERT
        self._state = ""  # "INTO", "COLUMNS", "VALUES": how much of an INSERT was read
        self._at = 0  # in VALUES, the number of the column
        self._parameters = 0

    def name(self, word: str, is_plain: bool) -> None:
        upper = word.upper() if is_plain else ""
        if upper == "INTO":
            self._state, self._columns = "INTO", []
        elif upper == "VALUES" and self._state:
            self._state, self._depth = "VALUES", 0
        elif upper in ("LIKE", "IS", "IN", "NOT"):
            self._behind = upper
        elif self._state == "COLUMNS":
            self._columns.append(word)
        elif upper not in ("E", "N", "ANY", "BINARY"):
            self._named, self._behind = word, ""

    def sign(self, sign: str) -> None:
        if sign == "(":
            self._depth += 1
            if self._state == "INTO":
                self._state = "COLUMNS"
            elif self._state == "VALUES" and self._depth == 1:
                self._at = 0
            elif self._behind != "IN":
                self._behind = ""
        elif sign == ")":
            self._depth -= 1
            self._behind = ""
            if self._state == "COLUMNS":
                self._state = "TABLE"
        elif sign == ",":
            self._at += self._state == "VALUES" and self._depth == 1
            if self._behind != "IN":
                self._behind = ""
        elif sign == ";":
            self.__init__()  # type: ignore[misc]
        elif sign in _EQUAL:
            self._behind = sign

    def value(self, parameter: "str | None") -> Tuple[str, int]:
        """(the column that a value is for, its number if it is a positional parameter)."""
        number = -1
        if parameter is not None:
            if parameter[0] == "$":
                number = int(parameter[1:]) - 1
            elif parameter[:1] == "?" or parameter == "%s":
                number = self._parameters
                self._parameters += 1
        if self._state == "VALUES" and self._depth > 0:
            return (self._columns[self._at] if self._at < len(self._columns) else ""), number
        is_for = self._behind in _EQUAL or self._behind in ("IN", "NOT")
        if self._behind != "IN":
            self._behind = ""
        return (self._named if is_for else ""), number

"""What is in PostgreSQL's messages: read into values, and built. Layouts: "Message Formats" in PostgreSQL's manual.

Readers never raise for what was sent: what makes no sense is None.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

__all__ = [
    "Bind",
    "Column",
    "Execute",
    "Named",
    "Parse",
    "build",
    "error",
    "read_bind",
    "read_copy_columns",
    "read_error",
    "read_execute",
    "read_named",
    "read_oids",
    "read_parse",
    "read_query",
    "read_row",
    "read_row_description",
    "read_startup",
    "read_status",
    "ready",
    "row",
    "row_description",
    "status",
    "text_of",
]

_MOST_FIELDS = {"S": "severity", "V": "severity", "C": "code", "M": "message", "D": "detail", "H": "hint"}
_MORE_FIELDS = {
    "P": "position",
    "p": "internal_position",
    "q": "internal_query",
    "W": "where",
    "s": "schema",
    "t": "table",
    "c": "column",
    "d": "datatype",
    "n": "constraint",
    "F": "file",
    "L": "line",
    "R": "routine",
}
_FIELDS = _MOST_FIELDS | _MORE_FIELDS


@dataclass(frozen=True, slots=True)
class Parse:
    """Parse. ``types``: oids, 0 for those left to the server."""

    name: str
    statement: str
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind. ``values``: None for NULL; ``formats``: one for each value; ``result_formats`` as sent: none, one for all, or each."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    result_formats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """Describe or Close. ``which``: "S" or "P"."""

    which: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """Execute. ``limit``: rows at most, 0 for all."""

    portal: str
    limit: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of RowDescription."""

    name: str
    table: int
    attribute: int
    type: int
    size: int
    modifier: int
    format: int


def text_of(data: bytes) -> str:
    """Text of a message; bytes that are not UTF-8 as backslash escapes, so that it is always text that JSON can hold."""
    return data.decode("utf-8", "backslashreplace")


class _Reader:
    """Raises ValueError or struct.error at the end of what there is."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = text_of(self._data[self._at : end])
        self._at = end + 1
        return found

    def numbers(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found

    def listed(self, letter: str) -> tuple[int, ...]:
        (count,) = self.numbers("!H")
        return self.numbers(f"!{count}{letter}")

    def value(self) -> bytes | None:
        (length,) = self.numbers("!i")
        if length < 0:
            return None
        self._at += length
        if self._at > len(self._data):
            raise ValueError("a value that is longer than its message")
        return self._data[self._at - length : self._at]


_BAD = (ValueError, struct.error)


def read_startup(body: bytes) -> tuple[int, dict[str, str]] | None:
    """(minor version, parameters) of a StartupMessage."""
    try:
        reader = _Reader(body)
        (code,) = reader.numbers("!I")
        parameters: dict[str, str] = {}
        while name := reader.text():
            parameters[name] = reader.text()
    except _BAD:
        return None
    return code & 0xFFFF, parameters


def read_query(body: bytes) -> str:
    """The text of a Query."""
    return text_of(body.partition(b"\0")[0])


@functools.lru_cache(maxsize=512)  # the same again with each query
def read_parse(body: bytes) -> Parse | None:
    """A Parse message."""
    try:
        reader = _Reader(body)
        return Parse(reader.text(), reader.text(), reader.listed("I"))
    except _BAD:
        return None


def read_bind(body: bytes) -> Bind | None:
    """A Bind message."""
    try:
        reader = _Reader(body)
        portal, statement, formats = reader.text(), reader.text(), reader.listed("h")
        (count,) = reader.numbers("!H")
        values = tuple(reader.value() for _ in range(count))
        every = formats if len(formats) == count else (formats[:1] or (0,)) * count
        return Bind(portal, statement, every, values, reader.listed("h"))
    except _BAD:
        return None


def read_named(body: bytes) -> Named | None:
    """A Describe or Close message."""
    try:
        return Named(chr(body[0]), _Reader(body[1:]).text()) if body[:1] in (b"S", b"P") else None
    except _BAD:
        return None


def read_execute(body: bytes) -> Execute | None:
    """An Execute message."""
    try:
        reader = _Reader(body)
        return Execute(reader.text(), max(0, reader.numbers("!i")[0]))
    except _BAD:
        return None


def read_oids(body: bytes) -> tuple[int, ...]:
    """The types of a ParameterDescription."""
    try:
        return _Reader(body).listed("I")
    except _BAD:
        return ()


@functools.lru_cache(maxsize=512)  # the same again with each query
def read_row_description(body: bytes) -> tuple[Column, ...]:
    """The columns of a RowDescription."""
    try:
        reader = _Reader(body)
        (count,) = reader.numbers("!H")
        return tuple(Column(reader.text(), *reader.numbers("!IhIhih")) for _ in range(count))
    except _BAD:
        return ()


def read_row(body: bytes) -> tuple[bytes | None, ...]:
    """The values of a DataRow."""
    try:
        reader = _Reader(body)
        (count,) = reader.numbers("!H")
        return tuple(reader.value() for _ in range(count))
    except _BAD:
        return ()


def read_copy_columns(body: bytes) -> tuple[int, ...]:
    """The format of each column of a CopyInResponse or CopyOutResponse."""
    try:
        return _Reader(body[1:]).listed("h")
    except _BAD:
        return ()


def read_error(body: bytes) -> dict[str, str]:
    """The fields of an ErrorResponse or NoticeResponse, by their names in libpq and psycopg."""
    fields: dict[str, str] = {}
    for part in body.split(b"\0"):
        if part:
            name = chr(part[0])
            fields[_FIELDS.get(name, name)] = text_of(part[1:])
    return fields


def read_status(body: bytes) -> tuple[str, str] | None:
    """(name, value) of a ParameterStatus."""
    try:
        reader = _Reader(body)
        return reader.text(), reader.text()
    except _BAD:
        return None


# -- built -------------------------------------------------------------------------------------------------------------


def build(letter: str, body: bytes = b"") -> bytes:
    """A message."""
    return letter.encode() + struct.pack("!I", len(body) + 4) + body


def ready(state: str) -> bytes:
    """ReadyForQuery with "I" (idle), "T" (in a transaction) or "E" (in one that failed)."""
    return build("Z", state.encode())


def error(
    code: str, message: str, *, severity: str = "ERROR", more: Mapping[str, str] | None = None
) -> bytes:
    """ErrorResponse. ``more``: further fields by their letters."""
    fields = {"S": severity, "V": severity, "C": code, "M": message, **(more or {})}
    said = b"".join(name.encode() + _text(value) for name, value in fields.items() if value)
    return build("E", said + b"\0")


def status(name: str, value: str) -> bytes:
    """ParameterStatus."""
    return build("S", _text(name) + _text(value))


def row_description(columns: Iterable[Column], formats: Sequence[int] | None = None) -> bytes:
    """RowDescription; with ``formats`` as a Bind asked for them, in the place of the columns' own."""
    formatted = list(columns)
    if formats is not None:
        every = (
            tuple(formats)
            if len(formats) == len(formatted)
            else (tuple(formats[:1]) or (0,)) * len(formatted)
        )
        formatted = [replace(column, format=form) for column, form in zip(formatted, every, strict=True)]
    said = b"".join(
        _text(one.name)
        + struct.pack("!IhIhih", one.table, one.attribute, one.type, one.size, one.modifier, one.format)
        for one in formatted
    )
    return build("T", struct.pack("!H", len(formatted)) + said)


def row(values: Sequence[bytes | None]) -> bytes:
    """DataRow."""
    said = b"".join(
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values
    )
    return build("D", struct.pack("!H", len(values)) + said)


def _text(value: str) -> bytes:
    return value.replace("\0", "").encode("utf-8", "surrogateescape") + b"\0"

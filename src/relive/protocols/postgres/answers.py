"""What is shown of an answer: the shape of the in-process recorder's ``answer`` (``kinds/query.py`` there).

``columns``, ``types`` (oids), ``rowcount``, ``rows`` (lists of packed values; ``rows_cut``: how many more there were), ``status``
(the command's tag), ``then`` (further results of several statements in one), ``completed`` (False: rows were limited, there are
more), ``error`` (fields of the server's message), ``notices``, ``notifications``, ``copied`` (what COPY brought), ``parameters``
(types of a prepared statement), ``transaction`` (in one afterwards).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from relive.protocols.postgres.framing import Message
from relive.protocols.postgres.messages import (
    Column,
    read_error,
    read_oids,
    read_row,
    read_row_description,
    read_status,
    text_of,
)
from relive.protocols.postgres.statement_state import copied_of
from relive.protocols.postgres.values import decode

__all__ = ["encoded_answer", "encoded_opening", "tags_of"]

_ROWS_MOST = 1 << 18  # [bytes] of rows that are told of one result


class _Result:
    """One result of an answer on its way."""

    def __init__(self, columns: Sequence[Column] | None) -> None:
        self.columns = columns
        self.summary: dict[str, Any] = {}
        self.is_empty = True
        self._rows: list[Any] = []
        self._size = 0
        self._cut = 0
        self._copied: list[bytes] = []

    def row(self, body: bytes) -> None:
        self.is_empty = False
        self._size += len(body)
        if self._size > _ROWS_MOST:
            self._cut += 1
            return
        values = read_row(body)
        columns = self.columns or ()
        about = (
            [(one.type, one.format) for one in columns]
            if len(columns) == len(values)
            else [(0, 0)] * len(values)
        )
        self._rows.append([decode(*one, value) for one, value in zip(about, values, strict=True)])

    def copy(self, body: bytes) -> None:
        self._copied.append(body)

    def done(self, tag: str | None) -> dict[str, Any]:
        summary = self.summary
        if tag is not None:
            summary["status"] = tag
        if self.columns:
            summary["columns"] = [one.name for one in self.columns]
            summary["types"] = [one.type for one in self.columns]
        if self._rows or (self.columns and tag is not None):
            summary["rowcount"] = len(self._rows) + self._cut
            summary["rows"] = self._rows
            if self._cut:
                summary["rows_cut"] = self._cut
        elif tag is not None and tag.rpartition(" ")[2].isdigit():
            summary["rowcount"] = int(tag.rpartition(" ")[2])
        if self._copied:
            summary["copied"] = copied_of(b"".join(self._copied))
        return summary


def encoded_answer(messages: Iterable[Message], columns: Sequence[Column] | None) -> dict[str, Any]:
    """``answer``. ``columns``: of its rows, where they were described before."""
    results: list[dict[str, Any]] = []
    aside: dict[str, Any] = {}
    result = _Result(columns)
    for message in messages:
        match message.kind:
            case "T":
                result.columns = read_row_description(message.body)
                result.is_empty = False
            case "D":
                result.row(message.body)
            case "d":
                result.copy(message.body)
            case "C" | "I" | "s":
                results.append(result.done(_tag(message)))
                if message.kind == "s":
                    results[-1]["completed"] = False
                result = _Result(None)
            case _:
                _aside(aside, message)
    if not result.is_empty or not results:
        results.append(result.done(None))
    first, *then = results
    if then:
        first["then"] = then
    return {**first, **aside}


def _tag(message: Message) -> str | None:
    return text_of(message.body.rstrip(b"\0")) if message.kind == "C" else None


def _aside(summary: dict[str, Any], message: Message) -> None:
    body = message.body
    if message.kind == "E":
        summary["error"] = read_error(body)
    elif message.kind == "N":
        summary.setdefault("notices", []).append(read_error(body))
    elif message.kind == "A":
        summary.setdefault("notifications", []).append([text_of(part) for part in body[4:].split(b"\0")[:2]])
    elif message.kind == "t":
        summary["parameters"] = list(read_oids(body))
    elif message.kind == "V":
        summary["value"] = decode(0, 1, None if body[:4] == b"\xff\xff\xff\xff" else body[4:])
    elif message.kind == "Z":
        summary["transaction"] = body != b"I"


def encoded_opening(messages: Iterable[Message]) -> dict[str, Any]:
    """``answer`` of connecting: ``parameters`` as the server told them, ``backend_pid``; ``error``."""
    summary: dict[str, Any] = {}
    for message in messages:
        if message.kind == "S" and (pair := read_status(message.body)) is not None:
            summary.setdefault("parameters", {})[pair[0]] = pair[1]
        elif message.kind == "K" and len(message.body) >= 4:
            summary["backend_pid"] = struct.unpack_from("!I", message.body)[0]
        elif message.kind in "EN":
            _aside(summary, message)
    return summary


def tags_of(messages: Iterable[Message]) -> tuple[str, ...]:
    """Tags of the commands that were completed."""
    return tuple(text_of(message.body.rstrip(b"\0")) for message in messages if message.kind == "C")

"""Where what a request read came from: who had written it last, as far as the recording of the service knows.

What is read is named: a key of Redis (with the field, of a hash), or the tables of a query. A write to the same name, by any
request or thread of the service, before the request read it, is an *origin*. Writes of other services are not known here.

For queries the name is a table and a value: a write to the table counts if it has one of the read's parameters, or if the read
has none. Statements are not parsed: tables are the words after FROM, JOIN, INTO and UPDATE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from relive.incidents.report.shown import unpacked_text
from relive.incidents.report.words import phrase
from relive.model.value import Value
from relive.protocols.redis.effects import names_read, names_written
from relive.recording.events import Event, EventKind

__all__ = ["Origins", "ValueOrigin", "Write", "needles", "origins_of"]

_LAST_WRITES = 3  # of each name
_MOST_NAMES = 32
_READ_TABLES = re.compile(r"\b(?:FROM|JOIN)\s+([\w.\"`]+)", re.IGNORECASE)
_WRITTEN_TABLE = re.compile(
    r"^\s*(?:INSERT\s+(?:OR\s+\w+\s+)?INTO|REPLACE\s+INTO|UPDATE|DELETE\s+FROM)\s+([\w.\"`]+)", re.IGNORECASE
)


class OriginName(NamedTuple):
    """What is read or written.

    Attributes:
        kind: REDIS_COMMAND or QUERY.
        part: of a hash the field, else None.
        values: of a query the parameters, as JSON has them.
    """

    kind: EventKind
    name: str
    part: str | None = None
    values: frozenset[str] = frozenset()

    def is_written_by(self, other: OriginName) -> bool:
        """The other, which is written, is this or holds it."""
        if (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.kind is EventKind.REDIS_COMMAND:
            return self.part is None or other.part is None or self.part == other.part
        return not self.values or bool(self.values & other.values)

    def __str__(self) -> str:
        return f"{self.name} {self.part}" if self.part is not None else self.name


class Write(Value):
    """One write.

    Attributes:
        before_ns: how long before the request began; negative when while it ran.
        request: number of the request that wrote, in its process; 0 for none. thread: a letter for its thread, the same one in
            all origins of a request.
    """

    before_ns: int
    what: str
    result: str
    pid: int | None
    thread: str
    request: int


class ValueOrigin(Value):
    """What was read, and the last writes to it, the last one last; ``writes`` counts all that are recorded."""

    name: str
    kind: EventKind
    last: list[Write]
    writes: int


class Origins:
    """Collects writes to what one request read; see the module."""

    def __init__(self, own: Sequence[Event]) -> None:
        """``own`` are the events of the request."""
        self._names: dict[OriginName, int] = {}  # until when [monotonic ns]: it was read then
        self._began = min((event.mono_ns for event in own), default=0)
        for event in own:
            for name in _names(event, _read_names):
                if len(self._names) < _MOST_NAMES or name in self._names:
                    self._names[name] = max(event.mono_ns, self._names.get(name, 0))
        self._found: dict[OriginName, list[Event]] = {name: [] for name in self._names}
        self._counts: dict[OriginName, int] = dict.fromkeys(self._names, 0)
        self._threads: dict[tuple[Any, Any], str] = {}

    @property
    def names(self) -> list[OriginName]:
        """What was read."""
        return list(self._names)

    def look_at(self, event: Event) -> None:
        """An event of the service, of any time; they come in the order of time."""
        for written in _names(event, _written_names):
            for name, until in self._names.items():
                if event.mono_ns < until and name.is_written_by(written):
                    self._counts[name] += 1
                    self._found[name] = [*self._found[name], event][-_LAST_WRITES:]

    def found(self) -> list[ValueOrigin]:
        """For every name that was written before it was read, in the order in which they were read."""
        return [
            ValueOrigin(
                name=str(name),
                kind=name.kind,
                last=[self._write(event) for event in events],
                writes=self._counts[name],
            )
            for name, events in self._found.items()
            if events
        ]

    def _write(self, event: Event) -> Write:
        words = phrase(event.kind, event.fields)
        pid = event.fields.get("pid")
        thread = self._threads.setdefault((pid, event.fields.get("thread")), _letter(len(self._threads)))
        return Write(
            before_ns=self._began - event.mono_ns,
            what=words.what,
            result=words.result,
            pid=pid if isinstance(pid, int) else None,
            thread=thread,
            request=event.request,
        )


def origins_of(own: Sequence[Event], others: Iterable[Event]) -> list[ValueOrigin]:
    """Where what a request read came from.

    Args:
        own: events of the request; others: of the service, in the order of time, those of the request may be among them.
    """
    origins = Origins(own)
    for event in others:
        origins.look_at(event)
    return origins.found()


def needles(names: Iterable[OriginName]) -> list[bytes]:
    """Bytes of which one stands in each event that can be an origin, for a search that need not understand all."""
    return sorted({name.name.encode("utf-8", "surrogatepass") for name in names})


def _names(event: Event, of: Any) -> Iterator[OriginName]:
    asked = event.fields.get("asked")
    if isinstance(asked, Mapping) and event.kind in (EventKind.REDIS_COMMAND, EventKind.QUERY):
        yield from of(event.kind, asked)


def _commands(asked: Mapping[str, Any]) -> Iterator[list[str]]:
    several = asked.get("commands")
    for command in several if isinstance(several, list) else [asked.get("command")]:
        if isinstance(command, list) and len(command) > 1:
            words = [str(word) if isinstance(word, int) else unpacked_text(word) or "" for word in command]
            yield [words[0].upper(), *words[1:]]


def _read_names(kind: EventKind, asked: Mapping[str, Any]) -> Iterator[OriginName]:
    if kind is EventKind.QUERY:
        statement = asked.get("statement")
        if isinstance(statement, str) and _WRITTEN_TABLE.match(statement) is None:
            for table in _READ_TABLES.findall(statement):
                yield OriginName(kind, _unquoted(table), values=_values(asked.get("parameters")))
        return
    for command in _commands(asked):
        yield from (OriginName(kind, key, field) for key, field in names_read(command))


def _written_names(kind: EventKind, asked: Mapping[str, Any]) -> Iterator[OriginName]:
    if kind is EventKind.QUERY:
        statement = asked.get("statement")
        match = _WRITTEN_TABLE.match(statement) if isinstance(statement, str) else None
        if match is not None:
            yield OriginName(kind, _unquoted(match[1]), values=_values(asked.get("parameters")))
        return
    for command in _commands(asked):
        yield from (OriginName(kind, key, field) for key, field in names_written(command))


def _letter(number: int) -> str:
    """A, B, ... Z, A1, B1, ..."""
    return chr(ord("A") + number % 26) + (str(number // 26) if number >= 26 else "")


def _unquoted(table: str) -> str:
    return table.rpartition(".")[2].strip('"`')


def _values(parameters: Any) -> frozenset[str]:
    """The plain values of a query's parameters, of all rows of an ``executemany``; as text, since drivers differ in types."""
    if isinstance(parameters, Mapping):
        content = parameters.get("$")
        if isinstance(content, list) and len(content) > 1:
            return _values(content[1])
        return frozenset(str(value) for value in parameters.values() if isinstance(value, int | str))
    if isinstance(parameters, list):
        found: set[str] = set()
        for value in parameters:
            found |= _values(value) if isinstance(value, list | Mapping) else set()
            if isinstance(value, int | str) and not isinstance(value, bool):
                found.add(str(value))
        return frozenset(found)
    return frozenset()

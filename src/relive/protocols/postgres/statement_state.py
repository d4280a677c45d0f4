"""What a connection has prepared and bound, and which messages of the extended protocol belong to one call.

A *unit* is one call's part of a *batch*, the messages between two points (Sync, Flush) at which the client can expect answers: an
Execute with the Bind and Parse before it and the Describes of its statement and portal; a Parse or Describe without an Execute; a
Bind without one. The same reading serves recorded and live connections, so that both ask in the same words.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from relive.protocols.postgres.framing import Message
from relive.protocols.postgres.messages import (
    Bind,
    Column,
    read_bind,
    read_execute,
    read_named,
    read_oids,
    read_parse,
    read_row_description,
)
from relive.protocols.postgres.statements import describe_statement
from relive.protocols.postgres.values import decode

__all__ = [
    "UNKNOWN",
    "Portal",
    "PreparedStatement",
    "Role",
    "StatementState",
    "Unit",
    "asked_of",
    "copied_of",
    "learn",
]

INLINE = 4096  # [bytes] of a parameter's value, or of what a COPY was given, that are told; of more the length and digest
UNKNOWN = "<a prepared statement that this connection does not have>"


class Role(IntEnum):
    """What a message is within its call, in the order in which a server does them."""

    PARSE = 1
    DESCRIBE_STATEMENT = 2
    BIND = 3
    DESCRIBE_PORTAL = 4
    EXECUTE = 5  # also a simple Query, a function call and the opening of a connection
    SYNC = 6


@dataclass(slots=True)
class PreparedStatement:
    """A prepared statement.

    Attributes:
        types: oids of its parameters as far as known: from Parse, then from the server's description.
        columns: as described by the server, None as long as they were not.
    """

    text: str
    types: tuple[int, ...] = ()
    columns: tuple[Column, ...] | None = None


@dataclass(slots=True)
class Portal:
    """A bound statement. ``executed``: how many times."""

    statement: PreparedStatement
    bind: Bind
    columns: tuple[Column, ...] | None = None
    executed: int = 0


@dataclass(slots=True)
class Unit:
    """See the module.

    Attributes:
        roles: (index in the batch, role).
        limit: of the Execute; part: which Execute of the portal it is, from 1; 0 without one.
    """

    statement: PreparedStatement
    portal: Portal | None = None
    roles: list[tuple[int, Role]] = field(default_factory=list)
    limit: int = 0
    part: int = 0

    def has(self, role: Role) -> bool:
        """Whether the client asked for that."""
        return any(one is role for _, one in self.roles)


class StatementState:
    """The statements and portals of a connection. Unknown names are taken as statements without a text."""

    def __init__(self) -> None:
        self._statements: dict[str, PreparedStatement] = {}
        self._portals: dict[str, Portal] = {}

    def read(self, batch: Sequence[Message]) -> tuple[list[Unit], dict[int, tuple[Unit, Role]]]:
        """The units of a batch in their order, and which message has which role in which; those of Close have none."""
        reading = _Reading(self._statements, self._portals)
        for index, message in enumerate(batch):
            reading.read_message(index, message)
        roles = {index: (unit, role) for unit in reading.units for index, role in unit.roles}
        return reading.units, roles


class _Reading:
    def __init__(self, statements: dict[str, PreparedStatement], portals: dict[str, Portal]) -> None:
        self.units: list[Unit] = []
        self._statements = statements
        self._portals = portals
        self._loose: dict[int, Unit] = {}  # by the statement's id: parsed or described, not bound yet
        self._bound: dict[int, Unit] = {}  # by the portal's id: bound or described, not executed yet

    def read_message(self, index: int, message: Message) -> None:
        match message.kind:
            case "P":
                self._parse(index, message.body)
            case "B":
                self._bind(index, message.body)
            case "D":
                self._describe(index, message.body)
            case "E":
                self._execute(index, message.body)
            case "C":
                self._close(message.body)

    def _unit(self, statement: PreparedStatement, portal: Portal | None = None) -> Unit:
        self.units.append(Unit(statement, portal))
        return self.units[-1]

    def _parse(self, index: int, body: bytes) -> None:
        parse = read_parse(body)
        statement = (
            PreparedStatement(parse.statement, parse.types)
            if parse is not None
            else PreparedStatement(UNKNOWN)
        )
        self._statements[parse.name if parse is not None else ""] = statement
        unit = self._loose[id(statement)] = self._unit(statement)
        unit.roles.append((index, Role.PARSE))

    def _named(self, name: str) -> PreparedStatement:
        return self._statements.setdefault(name, PreparedStatement(UNKNOWN))

    def _bind(self, index: int, body: bytes) -> None:
        bind = read_bind(body) or Bind("", "", (), (), ())
        statement = self._named(bind.statement)
        unit = self._loose.pop(id(statement), None) or self._unit(statement)
        portal = unit.portal = self._portals[bind.portal] = Portal(statement, bind)
        self._bound[id(portal)] = unit
        unit.roles.append((index, Role.BIND))

    def _describe(self, index: int, body: bytes) -> None:
        named = read_named(body)
        if named is not None and named.which == "P" and named.name in self._portals:
            portal = self._portals[named.name]
            unit = self._bound.get(id(portal))
            if unit is None:
                unit = self._bound[id(portal)] = self._unit(portal.statement, portal)
            unit.roles.append((index, Role.DESCRIBE_PORTAL))
            return
        statement = self._named(named.name if named is not None else "")
        unit = self._loose.get(id(statement))
        if unit is None:
            unit = self._loose[id(statement)] = self._unit(statement)
        unit.roles.append((index, Role.DESCRIBE_STATEMENT))

    def _execute(self, index: int, body: bytes) -> None:
        execute = read_execute(body)
        name = execute.portal if execute is not None else ""
        if name not in self._portals:
            self._portals[name] = Portal(PreparedStatement(UNKNOWN), Bind(name, "", (), (), ()))
        portal = self._portals[name]
        unit = self._bound.pop(id(portal), None) or self._unit(portal.statement, portal)
        portal.executed += 1
        unit.part, unit.limit = portal.executed, execute.limit if execute is not None else 0
        unit.roles.append((index, Role.EXECUTE))

    def _close(self, body: bytes) -> None:
        named = read_named(body)
        if named is not None:
            (self._statements if named.which == "S" else self._portals).pop(named.name, None)


# -- what is asked -----------------------------------------------------------------------------------------------------


def asked_of(server: str, database: str, statement: str, unit: Unit | None = None) -> dict[str, Any]:
    """``asked`` of a call: the shape of the in-process recorder's queries (``kinds/query.py`` there), and what only the wire has.

    ``system``, ``server`` ("ADDRESS:PORT"), ``database``, ``statement``; ``parameters`` where there are some; ``formats`` where not
    all results are asked for as text (codes of the columns, one for all where they are the same); ``fetch``: rows at most, 0
    for a Bind alone; ``part``: the how manieth Execute of a portal, from 2; ``prepare``: neither bound nor executed.
    """
    asked: dict[str, Any] = {
        "system": "postgresql",
        "server": server,
        "database": database,
        "statement": describe_statement(statement),
    }
    if unit is None:
        return asked
    if unit.portal is None:
        asked["prepare"] = True
        return asked
    bind = unit.portal.bind
    if bind.values:
        asked["parameters"] = _parameters(bind, unit.statement.types)
    if any(bind.result_formats):
        same = len(set(bind.result_formats)) == 1
        asked["formats"] = list(bind.result_formats[:1] if same else bind.result_formats)
    if unit.part == 0 or unit.limit:
        asked["fetch"] = unit.limit
    if unit.part > 1:
        asked["part"] = unit.part
    return asked


def _parameters(bind: Bind, types: tuple[int, ...]) -> list[Any]:
    every = (*types, *(0 for _ in range(len(bind.values) - len(types))))
    return [
        decode(oid, form, value) if value is None or len(value) <= INLINE else copied_of(value)
        for oid, form, value in zip(every, bind.formats, bind.values, strict=False)
    ]


def copied_of(data: bytes) -> Any:
    """What was sent along: text when it is short text, else what tells it from other data."""
    if len(data) <= INLINE:
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"$": ["bytes", base64.b64encode(data).decode()]}
    return {"bytes": len(data), "blake2b": hashlib.blake2b(data, digest_size=16).hexdigest()}


def learn(unit: Unit, role: Role, answer: Sequence[Message]) -> None:
    """What the server's description of a statement or portal says about it: so later Binds and rows can be read."""
    for message in answer:
        if message.kind == "t" and role is Role.DESCRIBE_STATEMENT:
            unit.statement.types = read_oids(message.body)
        elif message.kind in "Tn" and role is Role.DESCRIBE_STATEMENT:
            unit.statement.columns = read_row_description(message.body)
        elif message.kind in "Tn" and role is Role.DESCRIBE_PORTAL and unit.portal is not None:
            unit.portal.columns = read_row_description(message.body)

"""What recorded calls tell of their servers beside the answers: how connections are opened, what statements return."""

from __future__ import annotations

from relive.protocols.call import Call, Timed
from relive.protocols.pool import Pool
from relive.protocols.postgres.answer_parts import Parts
from relive.protocols.postgres.messages import build, ready, status
from relive.protocols.postgres.statement_state import Role
from relive.recording.events import EventKind

__all__ = ["ServerInfo", "parts_of"]

# Of a server that no recorded connection tells of.
_PARAMETERS = {
    "server_version": "15.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
}
_Statement = tuple[str, str]  # database, text


class ServerInfo:
    """See the module. It holds what the pool's calls told when it was made, used or not."""

    def __init__(self, pool: Pool) -> None:
        self._openings: list[Call] = []
        self._described: dict[_Statement, Parts] = {}
        self._typed: dict[_Statement, Parts] = {}
        self._copying: dict[_Statement, tuple[Timed, ...]] = {}
        for call in pool.of(EventKind.QUERY):
            parts = parts_of(call)
            if parts is not None:
                self._learn(call, parts)

    def _learn(self, call: Call, parts: Parts) -> None:
        statement = str(call.asked.get("database")), str(call.asked.get("statement"))
        if statement[1] == "CONNECT":
            if parts.failed is None and parts.stops is None:
                self._openings.append(call)
            return
        if parts.columns is not None and parts.failed is None:
            self._described[statement] = parts
        if parts.types is not None:
            self._typed[statement] = parts
        if parts.copied is not None:
            self._copying[statement] = _begin(parts.answers[Role.EXECUTE], parts.copied)

    def opening(self, to: tuple[str, int], database: str, user: str) -> Parts:
        """How a connection is opened: as at this server, for this database and user, as far as there is one; else as usual."""

        def likeness(call: Call) -> tuple[bool, bool, bool]:
            asked = call.asked
            same_user = asked.get("parameters", {}).get("user") == user
            return call.to == to, asked.get("database") == database, same_user

        if not self._openings:
            return _usual_opening()
        parts = parts_of(max(self._openings, key=likeness))
        return parts if parts is not None else _usual_opening()

    def described(self, database: str, statement: str) -> Parts | None:
        """A call whose ``columns`` are those of a statement."""
        return self._described.get((database, statement))

    def typed(self, database: str, statement: str) -> Parts | None:
        """A call whose ``types`` are those of a statement's parameters."""
        return self._typed.get((database, statement))

    def copying(self, database: str, statement: str) -> tuple[Timed, ...] | None:
        """How the server began to take data for this COPY; None where it never did."""
        return self._copying.get((database, statement))


def parts_of(call: Call) -> Parts | None:
    """The answer in parts; None for a call of another protocol."""
    parts = call.extra.get("parts")
    return parts if isinstance(parts, Parts) else None


def _begin(chunks: tuple[Timed, ...], size: int) -> tuple[Timed, ...]:
    found: list[Timed] = []
    for chunk in chunks:
        if size <= 0:
            break
        found.append(Timed(chunk.after_ns, chunk.data[:size]))
        size -= len(chunk.data)
    return tuple(found)


def _usual_opening() -> Parts:
    said = build("R", b"\0\0\0\0") + b"".join(status(*pair) for pair in _PARAMETERS.items())
    said += build("K", b"\0\0\0\1\0\0\0\0") + ready("I")
    return Parts({Role.EXECUTE: (Timed(0, said),)})

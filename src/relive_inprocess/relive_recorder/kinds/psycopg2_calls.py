"""Calls of psycopg2: connecting, queries of a cursor, the end of a transaction; see ``psycopg2`` for the fields."""

import sys
from typing import Any, Dict, List, Optional, Tuple

from relive_recorder.calls import KeptAnswer, NoAnswer
from relive_recorder.kinds.query import Query, RowsLater, encoded_rows, packed_row, rows_again
from relive_recorder.recorder import recorder
from relive_recorder.values import pack, unpack

__all__ = ["Connected", "CursorResult", "ExecutedQuery", "TransactionEnd", "database_of"]

_BYTEA = 17
_PARAMETERS = ("server_encoding", "client_encoding", "TimeZone", "DateStyle", "server_version")


class Connected(Query):
    """Connecting; the value is a connection of the class ``kind``."""

    system = "postgresql"

    def __init__(self, kind: Any, dsn: str) -> None:
        self.factory = kind
        self.dsn = dsn

    def broken(self, text: str) -> BaseException:
        return NoAnswer(text)

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        encoded = {
            "parameters": {name: value.get_parameter_status(name) for name in _PARAMETERS},
            "server_version": value.server_version,
            "protocol_version": value.protocol_version,
            "encoding": value.encoding,
            "backend_pid": value.get_backend_pid(),
        }
        return encoded, b"", {}

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        return self.made(kept.fields["answer"])

    def rebuild_error(self, kept: KeptAnswer) -> BaseException:
        return _error_again(super().rebuild_error(kept), kept.fields["error"])

    def made(self, encoded: Dict[str, Any]) -> Any:
        connection = self.factory.__new__(self.factory)
        connection._relive_encoded = encoded
        connection._relive_dsn = self.dsn
        connection._relive_state = 0
        return connection


class ExecutedQuery(Query):
    """A query of a cursor, which is the value; its answer comes back into it."""

    system = "postgresql"

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor

    def broken(self, text: str) -> BaseException:
        return sys.modules["psycopg2"].OperationalError(text)  # type: ignore[no-any-return]

    def encode_error(self, error: BaseException) -> Dict[str, Any]:
        encoded = super().encode_error(error)
        for name in ("pgcode", "pgerror"):
            encoded[name] = recorder.scrubber.packed(pack(getattr(error, name, None)))
        encoded["transaction"] = self.cursor.connection.get_transaction_status()
        return encoded

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        cursor = self.cursor
        connection = cursor.connection
        answer: Dict[str, Any] = {
            "rowcount": cursor.rowcount,
            "transaction": connection.get_transaction_status(),
        }
        if cursor.statusmessage is not None:
            answer["status"] = cursor.statusmessage
        if cursor.lastrowid:
            answer["lastrowid"] = cursor.lastrowid
        columns = cursor.description
        if columns is None:
            return answer, b"", {}
        answer["columns"] = [column[0] for column in columns]
        answer["types"] = [list(column[1:7]) for column in columns]
        if cursor.name is not None:
            return answer, b"", {}
        rows = cursor._relive_all_rows()
        fields, data, more = encoded_rows(map(packed_row, rows), len(rows), answer["columns"])
        answer.update(fields)
        return answer, data, more

    def recorded(self, value: Any, seq: int) -> None:
        if self.cursor.name is not None:
            self.cursor._relive_later = RowsLater(
                seq, [column[0] for column in self.cursor.description or ()]
            )

    def ended(self, tag: str, goes_on: bool) -> Optional[Dict[str, Any]]:
        return {"rowcount": -1, "transaction": 2 if goes_on else 0, "status": tag}

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        answer = kept.fields["answer"]
        rows = rows_again(kept, answer) if "columns" in answer else []
        binary = [number for number, one in enumerate(answer.get("types", ())) if one[0] == _BYTEA]
        values = []
        for row in rows:
            again = [unpack(value) for value in row]
            for number in binary:
                if again[number] is not None:
                    again[number] = memoryview(again[number])
            values.append(again)
        self.cursor._relive_played = CursorResult(answer, values)
        self.cursor.connection._relive_state = answer.get("transaction", 0)
        return None

    def rebuild_error(self, kept: KeptAnswer) -> BaseException:
        error = kept.fields["error"]
        self.cursor._relive_played = CursorResult({"rowcount": -1}, [])
        self.cursor.connection._relive_state = error.get("transaction", 0)
        return _error_again(super().rebuild_error(kept), error)


def _error_again(error: BaseException, encoded: Dict[str, Any]) -> BaseException:
    if isinstance(error, NoAnswer):  # psycopg2 loads the module of its errors late
        from importlib import import_module

        import_module("psycopg2.errors")
        error = Query().rebuild_error(KeptAnswer({"error": encoded}, b""))
    if encoded.get("pgcode") is not None and hasattr(error, "__setstate__"):
        error.__setstate__({"pgcode": encoded["pgcode"], "pgerror": unpack(encoded["pgerror"])})
    return error


class CursorResult:
    """What a cursor holds in a replay."""

    __slots__ = ("answer", "at", "rows")

    def __init__(self, answer: Dict[str, Any], rows: List[List[Any]]) -> None:
        self.answer = answer
        self.rows = rows
        self.at = 0

    def description(self) -> Any:
        if "columns" not in self.answer:
            return None
        column = sys.modules["psycopg2.extensions"].Column
        return tuple(
            column(name, *about) for name, about in zip(self.answer["columns"], self.answer["types"])
        )


class TransactionEnd(ExecutedQuery):
    """COMMIT and its like: of a connection, not a cursor."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def encode_error(self, error: BaseException) -> Dict[str, Any]:
        return Query.encode_error(self, error)

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        return {"transaction": self.connection.get_transaction_status()}, b"", {}

    def recorded(self, value: Any, seq: int) -> None:
        pass

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        self.connection._relive_state = kept.fields["answer"].get("transaction", 0)

    def rebuild_error(self, kept: KeptAnswer) -> BaseException:
        return _error_again(Query.rebuild_error(self, kept), kept.fields["error"])


def database_of(connection: Any) -> str:
    """Name of the database that it is connected to."""
    known = connection._relive_database
    if known is None:
        extensions = sys.modules["psycopg2.extensions"]
        known = connection._relive_database = extensions.parse_dsn(connection.dsn).get("dbname", "")
    return known  # type: ignore[no-any-return]

"""MySQL and MariaDB through PyMySQL, and what is built on it (SQLAlchemy, Django).

One statement that goes to the server is one event; ``asked`` has statement and parameters as the cursor got them, before PyMySQL
puts the one into the other. Connecting is one event whatever PyMySQL says to the server meanwhile. More in ``answer``:
``lastrowid``, ``server_status`` (bits of the protocol), ``message``, ``description``, ``tables`` (of each column), ``next``
(another result follows; it is asked for by the statement "<next result>").

Not answered in a replay: rows of unbuffered cursors (recorded as ``rows``), LOAD DATA LOCAL.
"""

import functools
import sys
from typing import Any, Callable, Dict, Optional, Tuple

from relive_recorder.calls import KeptAnswer, NoAnswer, through
from relive_recorder.guard import attempt
from relive_recorder.kinds.query import (
    Query,
    RowsLater,
    asked_of,
    encoded_rows,
    is_watching,
    packed_row,
    rows_again,
    values_again,
)
from relive_recorder.recorder import REPLAY, recorder

__all__ = ["change_connections", "change_cursors"]

_ABOUT_SERVER = (
    "server_version",
    "server_status",
    "server_language",
    "server_capabilities",
    "protocol_version",
)


def change_cursors(module: Any) -> None:
    """Called when it has been imported."""
    module.Cursor.execute = _executing(module.Cursor.execute)
    module.Cursor.executemany = _executing_many(module.Cursor.executemany)


def change_connections(module: Any) -> None:
    """Called when it has been imported."""
    connection, result = module.Connection, module.MySQLResult
    connection.query = _querying(connection.query)
    connection.next_result = _next_result(connection.next_result)
    connection.connect = _connecting(connection.connect)
    for statement in ("BEGIN", "COMMIT", "ROLLBACK", "PING"):
        name = statement.lower()
        setattr(connection, name, _saying(getattr(connection, name), _always(statement)))
    connection._send_autocommit_mode = _saying(
        connection._send_autocommit_mode, lambda self, _given: f"SET AUTOCOMMIT = {int(self.autocommit_mode)}"
    )
    connection.select_db = _saying(
        connection.select_db, lambda _self, given: f"USE {given[0] if given else ''}"
    )
    connection.set_character_set = _saying(
        connection.set_character_set, lambda _self, given: f"SET NAMES {given[0] if given else ''}"
    )
    result._read_rowdata_packet_unbuffered = _reading_later(result._read_rowdata_packet_unbuffered)


def _always(statement: str) -> Callable[[Any, Any], str]:
    return lambda _connection, _given: statement


# -- cursors: what is asked --------------------------------------------------------------------------------------------


def _executing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute(self: Any, query: Any, args: Any = None) -> Any:
        connection = self.connection
        if not is_watching() or not connection:
            return real(self, query, args)
        outer = getattr(connection, "_relive_asking", None)
        if outer is None or args is not None:
            connection._relive_asking = (query, args, False)
        try:
            return real(self, query, args)
        finally:
            connection._relive_asking = outer

    return execute


def _executing_many(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def executemany(self: Any, query: Any, args: Any) -> Any:
        connection = self.connection
        if not is_watching() or not connection or not args:
            return real(self, query, args)
        args = list(args)
        connection._relive_asking = (query, args, True)
        try:
            return real(self, query, args)
        finally:
            connection._relive_asking = None

    return executemany


# -- connections -------------------------------------------------------------------------------------------------------


_IN_TRANSACTION = 1  # SERVER_STATUS_IN_TRANS


class _Said(Query):
    """Something said to the server that it answers with OK."""

    system = "mysql"

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def broken(self, text: str) -> BaseException:
        return sys.modules["pymysql.err"].OperationalError(2013, text)  # type: ignore[no-any-return]

    def encode_error(self, error: BaseException) -> Dict[str, Any]:
        return {**super().encode_error(error), "server_status": getattr(self.connection, "server_status", 0)}

    def rebuild_error(self, kept: KeptAnswer) -> BaseException:
        self.connection.server_status = kept.fields["error"].get("server_status", 0)
        return super().rebuild_error(kept)

    def ended(self, tag: str, goes_on: bool) -> Optional[Dict[str, Any]]:
        status = getattr(self.connection, "server_status", 0) & ~_IN_TRANSACTION
        return {"rowcount": 0, "server_status": status | (_IN_TRANSACTION if goes_on else 0)}

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        return {"server_status": self.connection.server_status}, b"", {}

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        self.connection.server_status = kept.fields["answer"].get("server_status", 0)


class _Queried(_Said):
    """A statement; its value is the number of rows, its result goes into the connection."""

    def __init__(self, connection: Any, unbuffered: bool) -> None:
        super().__init__(connection)
        self.unbuffered = unbuffered

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        result = self.connection._result
        answer: Dict[str, Any] = {
            "rowcount": result.affected_rows,
            "server_status": self.connection.server_status,
        }
        for name, encoded in (
            ("lastrowid", result.insert_id),
            ("next", result.has_next),
            ("warnings", result.warning_count),
        ):
            if encoded:
                answer[name] = encoded
        if result.message:
            answer["message"] = bytes(result.message).decode("utf-8", "replace")
        if not result.description:
            return answer, b"", {}
        answer["columns"] = [column[0] for column in result.description]
        answer["description"] = [list(column[1:]) for column in result.description]
        answer["tables"] = [field.table_name for field in result.fields]
        if self.unbuffered:
            return answer, b"", {}
        fields, data, more = encoded_rows(map(packed_row, result.rows), len(result.rows), answer["columns"])
        answer.update(fields)
        return answer, data, more

    def recorded(self, value: Any, seq: int) -> None:
        if self.unbuffered:
            result = self.connection._result
            result._relive_later = RowsLater(seq, [column[0] for column in result.description or ()])

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        super().rebuild_kept(kept)
        answer, connection = kept.fields["answer"], self.connection
        if self.unbuffered and "columns" in answer:
            raise self.broken("rows of unbuffered cursors are not answered in a replay")
        result = sys.modules["pymysql.connections"].MySQLResult(None)
        result.affected_rows = answer.get("rowcount")
        result.insert_id = answer.get("lastrowid", 0 if "columns" not in answer else None)
        result.server_status = answer.get("server_status")
        result.warning_count = answer.get("warnings", 0)
        result.has_next = answer.get("next", False)
        result.message = answer.get("message", "").encode()
        if "columns" in answer:
            described = zip(answer["columns"], answer["description"])
            result.description = tuple((name, *about) for name, about in described)
            result.fields = [_Field(*one) for one in zip(answer["columns"], answer["tables"])]
            result.field_count = len(result.fields)
            result.rows = tuple(values_again(rows_again(kept, answer)))
        connection._result = result
        connection._affected_rows = result.affected_rows
        return result.affected_rows


class _Field:
    """What cursors read of a column's description."""

    __slots__ = ("name", "table_name")

    def __init__(self, name: str, table_name: str) -> None:
        self.name = name
        self.table_name = table_name


def _is_own(connection: Any) -> bool:
    """It is PyMySQL's own talk while it connects, or nobody listens."""
    return not is_watching() or getattr(connection, "_relive_connecting", False)


def _asked(connection: Any, statement: Any, given: Any = None, many: bool = False) -> Dict[str, Any]:
    database = connection.db
    if isinstance(database, bytes):
        database = database.decode("utf-8", "replace")
    return asked_of("mysql", database or "", _plain(statement), given, many)


def _plain(statement: Any) -> Any:
    return bytes(statement) if isinstance(statement, bytearray) else statement


def _querying(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def query(self: Any, sql: Any, unbuffered: bool = False) -> Any:
        if _is_own(self):
            return real(self, sql, unbuffered)
        asking = getattr(self, "_relive_asking", None) or (sql, None, False)
        asked = attempt(_asked, self, *asking)
        if asked is None:
            return real(self, sql, unbuffered)
        return through(_Queried(self, unbuffered), asked, lambda: real(self, sql, unbuffered))

    return query


def _next_result(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def next_result(self: Any, unbuffered: bool = False) -> Any:
        asked = None if _is_own(self) else attempt(_asked, self, "<next result>")
        if asked is None:
            return real(self, unbuffered)
        return through(_Queried(self, unbuffered), asked, lambda: real(self, unbuffered))

    return next_result


def _saying(real: Callable[..., Any], statement: Callable[[Any, Any], str]) -> Callable[..., Any]:
    @functools.wraps(real)
    def say(self: Any, *given: Any, **named: Any) -> Any:
        if _is_own(self):
            return real(self, *given, **named)
        said = statement(self, given or tuple(named.values()))
        if said == "PING" and self._sock is None:
            return real(self, *given, **named)
        asked = attempt(_asked, self, said)
        return (
            real(self, *given, **named)
            if asked is None
            else through(_Said(self), asked, lambda: real(self, *given, **named))
        )

    return say


def _reading_later(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def read(self: Any) -> Any:
        row = real(self)
        later = getattr(self, "_relive_later", None)
        if later is not None:
            attempt(later.flush) if row is None else attempt(later.one, row)
        return row

    return read


# -- connecting --------------------------------------------------------------------------------------------------------


class _NoSocket:
    """In the place of a connection's socket in a replay: it is there, and nothing goes through."""

    def settimeout(self, _seconds: Any) -> None:
        pass

    def setsockopt(self, *_given: Any) -> None:
        pass

    def sendall(self, _data: Any) -> None:
        raise NoAnswer("a replay has no network")

    def close(self) -> None:
        pass


class _Connected(_Said):
    def broken(self, text: str) -> BaseException:
        return NoAnswer(text)

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        encoded = {name: getattr(self.connection, name, None) for name in _ABOUT_SERVER}
        encoded["server_charset"] = self.connection.server_charset
        encoded["thread"] = self.connection.server_thread_id[0]
        encoded["host_info"] = self.connection.host_info
        return encoded, b"", {}

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        self.pretend(kept.fields["answer"])

    def pretend(self, encoded: Dict[str, Any]) -> None:
        """The connection as ``connect`` leaves it, without a server."""
        connection = self.connection
        connection._closed = False
        connection._sock, connection._rfile = _NoSocket(), None
        connection._result = None
        connection._affected_rows = None
        connection._next_seq_id = 0
        connection.server_status = 2
        for name in (*_ABOUT_SERVER, "server_charset", "host_info"):
            if encoded.get(name) is not None:
                setattr(connection, name, encoded[name])
        connection.server_thread_id = (encoded.get("thread", 0),)


def _connecting(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def connect(self: Any, sock: Any = None) -> Any:
        asked = attempt(_connect_asked, self) if is_watching() else None
        if asked is None:
            return real(self, sock)
        channel = _Connected(self)
        self._relive_connecting = True
        try:
            return through(channel, asked, lambda: real(self, sock))
        except NoAnswer:
            if recorder.mode() != REPLAY:
                raise
            return channel.pretend({})
        finally:
            self._relive_connecting = False

    return connect


def _connect_asked(connection: Any) -> Dict[str, Any]:
    if connection.password:
        recorder.scrubber.learn(connection.password.decode("latin-1"))
    about = {"host": connection.host, "port": connection.port, "user": connection.user}
    if connection.unix_socket:
        about = {"socket": connection.unix_socket, "user": connection.user}
    about["user"] = (
        about["user"].decode("utf-8", "replace") if isinstance(about["user"], bytes) else about["user"]
    )
    return _asked(connection, "CONNECT", about)

"""PostgreSQL through psycopg2, and what is built on it (SQLAlchemy, Django).

Its types are in C and cannot be changed, so ``psycopg2.extensions.connection`` and ``cursor`` become subclasses of them, under
the same names. More in ``answer``: ``status``, ``types`` (numbers of the columns' types), ``transaction`` (the connection's
state after it). ``error`` has ``pgcode`` and ``pgerror``.

Rows are read at once when a query was executed, and psycopg2 is set back to the first. Not kept: values of types that ``values``
does not know (ranges, composites), rows of named cursors (recorded as ``rows``, not answered), COPY, large objects, ``diag``
of errors. Asynchronous connections are left alone.
"""

import functools
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from relive_recorder.calls import Kept, NoAnswer, through
from relive_recorder.guard import attempt
from relive_recorder.kinds.query import (
    Query,
    RowsLater,
    asked_of,
    is_watching,
    packed_row,
    rows_again,
    rows_told,
)
from relive_recorder.recorder import REPLAY, recorder
from relive_recorder.values import pack, unpack

__all__ = ["change", "change_extensions"]

_BYTEA = 17
_PARAMETERS = ("server_encoding", "client_encoding", "TimeZone", "DateStyle", "server_version")
_READY, _BEGIN = 1, 2  # psycopg2.extensions.STATUS_*


def change_extensions(module: Any) -> None:
    """Called when it has been imported."""
    real_cursor, real_connection = module.cursor, module.connection
    cursor = _cursor_class(real_cursor)
    connection = _connection_class(real_connection, real_cursor, cursor)
    for made, real in ((cursor, real_cursor), (connection, real_connection)):
        made.__name__ = made.__qualname__ = real.__name__
        made.__module__, made.__doc__ = real.__module__, real.__doc__
    module.cursor, module.connection = cursor, connection


def change(module: Any) -> None:
    """Called when it has been imported."""
    real = module._connect
    extensions = sys.modules["psycopg2.extensions"]

    @functools.wraps(real)
    def connect(dsn: str, connection_factory: Any = None, **named: Any) -> Any:
        if any(named.values()):  # an asynchronous one
            return real(dsn, connection_factory=connection_factory, **named)
        kind = connection_factory or extensions.connection
        asked = attempt(_connect_asked, extensions, dsn) if is_watching() else None
        if asked is None:
            return real(dsn, connection_factory=kind, **named)
        channel = _Connected(kind, dsn)
        try:
            return through(channel, asked, lambda: real(dsn, connection_factory=kind, **named))
        except NoAnswer:
            return channel.made({})

    module._connect = connect
    module.connection = extensions.connection


def _connect_asked(extensions: Any, dsn: str) -> Dict[str, Any]:
    found = extensions.parse_dsn(dsn)
    if found.get("password"):
        recorder.scrubber.learn(found["password"])
    about = {name: found[name] for name in ("host", "port", "user") if name in found}
    return asked_of("postgresql", found.get("dbname", ""), "CONNECT", about)


class _Connected(Query):
    system = "postgresql"

    def __init__(self, kind: Any, dsn: str) -> None:
        self.factory = kind
        self.dsn = dsn

    def broken(self, text: str) -> BaseException:
        return NoAnswer(text)

    def tell(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        told = {
            "parameters": {name: value.get_parameter_status(name) for name in _PARAMETERS},
            "server_version": value.server_version,
            "protocol_version": value.protocol_version,
            "encoding": value.encoding,
            "backend_pid": value.get_backend_pid(),
        }
        return told, b"", {}

    def again(self, kept: Kept) -> Any:
        return self.made(kept.fields["answer"])

    def rebuild_error(self, kept: Kept) -> BaseException:
        return _error_again(super().rebuild_error(kept), kept.fields["error"])

    def made(self, told: Dict[str, Any]) -> Any:
        connection = self.factory.__new__(self.factory)
        connection._relive_told = told
        connection._relive_dsn = self.dsn
        connection._relive_state = 0
        return connection


class _Executed(Query):
    """A query of a cursor, which is the value; its answer comes back into it."""

    system = "postgresql"

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor

    def broken(self, text: str) -> BaseException:
        return sys.modules["psycopg2"].OperationalError(text)  # type: ignore[no-any-return]

    def tell_error(self, error: BaseException) -> Dict[str, Any]:
        told = super().tell_error(error)
        for name in ("pgcode", "pgerror"):
            told[name] = recorder.scrubber.packed(pack(getattr(error, name, None)))
        told["transaction"] = self.cursor.connection.get_transaction_status()
        return told

    def tell(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
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
        fields, data, more = rows_told(map(packed_row, rows), len(rows))
        answer.update(fields)
        return answer, data, more

    def told(self, value: Any, seq: int) -> None:
        if self.cursor.name is not None:
            self.cursor._relive_later = RowsLater(seq)

    def again(self, kept: Kept) -> Any:
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
        self.cursor._relive_played = _Result(answer, values)
        self.cursor.connection._relive_state = answer.get("transaction", 0)
        return None

    def rebuild_error(self, kept: Kept) -> BaseException:
        error = kept.fields["error"]
        self.cursor._relive_played = _Result({"rowcount": -1}, [])
        self.cursor.connection._relive_state = error.get("transaction", 0)
        return _error_again(super().rebuild_error(kept), error)


def _error_again(error: BaseException, told: Dict[str, Any]) -> BaseException:
    if isinstance(error, NoAnswer):  # psycopg2 loads the module of its errors late
        from importlib import import_module

        import_module("psycopg2.errors")
        error = Query().rebuild_error(Kept({"error": told}, b""))
    if told.get("pgcode") is not None and hasattr(error, "__setstate__"):
        error.__setstate__({"pgcode": told["pgcode"], "pgerror": unpack(told["pgerror"])})
    return error


class _Result:
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


class _Ended(_Executed):
    """COMMIT and its like: of a connection, not a cursor."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def tell_error(self, error: BaseException) -> Dict[str, Any]:
        return Query.tell_error(self, error)

    def tell(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        return {"transaction": self.connection.get_transaction_status()}, b"", {}

    def told(self, value: Any, seq: int) -> None:
        pass

    def again(self, kept: Kept) -> Any:
        self.connection._relive_state = kept.fields["answer"].get("transaction", 0)

    def rebuild_error(self, kept: Kept) -> BaseException:
        return _error_again(Query.rebuild_error(self, kept), kept.fields["error"])


# -- cursors -----------------------------------------------------------------------------------------------------------


def _played(name: str, real: Any, read: Callable[[Any], Any]) -> property:
    """An attribute that is read from what is played, where that is."""
    descriptor = getattr(real, name)

    def get(self: Any) -> Any:
        played = self._relive_played
        return descriptor.__get__(self) if played is None else read(played)

    return property(get, doc=descriptor.__doc__)


def _cursor_class(real: Any) -> Any:
    class Cursor(real):  # type: ignore[misc]
        _relive_played: Optional[_Result] = None
        _relive_later: Any = None

        def execute(self, query: Any, vars: Any = None) -> None:
            return _execute(self, query, vars, False, lambda: real.execute(self, query, vars))

        def executemany(self, query: Any, vars_list: Any) -> None:
            if is_watching():
                vars_list = list(vars_list)
            return _execute(self, query, vars_list, True, lambda: real.executemany(self, query, vars_list))

        def callproc(self, procname: Any, *given: Any) -> Any:
            _execute(
                self,
                f"CALL {procname}",
                given[0] if given else None,
                False,
                lambda: real.callproc(self, procname, *given),
            )
            return given[0] if given else None

        def _relive_all_rows(self) -> List[Any]:
            factory: Any = self.row_factory  # type: ignore[has-type]
            self.row_factory = None
            try:
                rows = real.fetchall(self)
                if rows:
                    real.scroll(self, 0, "absolute")
            finally:
                self.row_factory = factory
            return rows  # type: ignore[no-any-return]

        def _relive_take(self, count: Optional[int]) -> List[Any]:
            played = self._relive_played
            assert played is not None
            if "columns" not in played.answer:
                raise sys.modules["psycopg2"].ProgrammingError("no results to fetch")
            end = len(played.rows) if count is None else played.at + count
            rows = played.rows[played.at : end]
            played.at += len(rows)
            if self.row_factory is None:
                return [tuple(row) for row in rows]
            return [_filled(self.row_factory(self), row) for row in rows]

        def fetchone(self) -> Any:
            if self._relive_played is not None:
                rows = self._relive_take(1)
                return rows[0] if rows else None
            row = real.fetchone(self)
            _noted(self, [] if row is None else [row])
            return row

        def fetchmany(self, size: Any = None) -> Any:
            if self._relive_played is not None:
                return self._relive_take(self.arraysize if size is None else size)
            return _noted(self, real.fetchmany(self, self.arraysize if size is None else size))

        def fetchall(self) -> Any:
            if self._relive_played is not None:
                return self._relive_take(None)
            return _noted(self, real.fetchall(self))

        def __next__(self) -> Any:
            if self._relive_played is not None:
                rows = self._relive_take(1)
                if not rows:
                    raise StopIteration
                return rows[0]
            row = real.__next__(self)
            _noted(self, [row])
            return row

        def scroll(self, value: int, mode: str = "relative") -> None:
            played = self._relive_played
            if played is None:
                return real.scroll(self, value, mode)  # type: ignore[no-any-return]
            at = value if mode == "absolute" else played.at + value
            if not 0 <= at < len(played.rows):
                raise sys.modules["psycopg2"].ProgrammingError("scroll destination out of bounds")
            played.at = at
            return None

        def close(self) -> None:
            if self._relive_played is None:
                real.close(self)

    Cursor.description = _played("description", real, _Result.description)
    Cursor.rowcount = _played("rowcount", real, lambda played: played.answer.get("rowcount", -1))
    Cursor.statusmessage = _played("statusmessage", real, lambda played: played.answer.get("status"))
    Cursor.lastrowid = _played("lastrowid", real, lambda played: played.answer.get("lastrowid", 0))
    Cursor.rownumber = _played("rownumber", real, lambda played: played.at)
    return Cursor


def _filled(row: Any, values: List[Any]) -> Any:
    for number, value in enumerate(values):
        row[number] = value
    return row


def _noted(cursor: Any, rows: Any) -> Any:
    """Rows of a named cursor; those of others are in the query's event."""
    later = cursor._relive_later
    if later is not None and rows:
        attempt(later.many, rows)
    return rows


def _execute(cursor: Any, query: Any, given: Any, many: bool, perform: Callable[[], Any]) -> None:
    cursor._relive_later = None
    connection = cursor.connection
    if not is_watching() or not hasattr(connection, "_relive_told") or connection.async_:
        return perform()  # type: ignore[no-any-return]
    asked = attempt(_asked, cursor, query, given, many)
    if asked is None:
        return perform()  # type: ignore[no-any-return]
    played = recorder.mode() == REPLAY
    if played and cursor.name is not None:
        raise _Executed(cursor).broken("rows of named cursors are not answered in a replay")
    _begin(connection)
    return through(_Executed(cursor), asked, perform)  # type: ignore[no-any-return]


def _begin(connection: Any) -> None:
    """In a replay as psycopg2 does by itself: a transaction begins with the first query, and is no call of its own."""
    if recorder.mode() == REPLAY:
        connection._relive_meet()


def _asked(cursor: Any, query: Any, given: Any, many: bool) -> Dict[str, Any]:
    if not isinstance(query, (str, bytes)) and hasattr(query, "as_string"):
        query = _text(query, cursor)
    return asked_of("postgresql", _database(cursor.connection), query, given, many)


def _text(composed: Any, cursor: Any) -> str:
    """A statement composed of ``psycopg2.sql``, without asking the connection how to quote."""
    parts = getattr(composed, "seq", None)
    if parts is not None:
        return "".join(_text(part, cursor) for part in parts)
    strings = getattr(composed, "strings", None)
    if strings is not None:
        return ".".join('"' + one.replace('"', '""') + '"' for one in strings)
    wrapped = composed.wrapped if hasattr(composed, "wrapped") else composed.as_string(cursor)
    return wrapped if hasattr(composed, "string") or isinstance(wrapped, str) else str(pack(wrapped))


def _database(connection: Any) -> str:
    known = connection._relive_database
    if known is None:
        extensions = sys.modules["psycopg2.extensions"]
        known = connection._relive_database = extensions.parse_dsn(connection.dsn).get("dbname", "")
    return known  # type: ignore[no-any-return]


# -- connections -------------------------------------------------------------------------------------------------------


def _connection_class(real: Any, real_cursor: Any, cursor: Any) -> Any:
    class Connection(real):  # type: ignore[misc]
        _relive_told: Any = None  # what is known of one that was connected in a replay
        _relive_dsn: Optional[str] = None
        _relive_database: Optional[str] = None
        _relive_state: Optional[int] = None  # of its transaction; None: libpq knows it
        _relive_own: Optional[Dict[str, Any]] = None  # what was set in a replay
        _relive_closed = False

        def _relive_meet(self) -> bool:
            """In a replay: from now on without libpq."""
            if self._relive_own is None:
                if self._relive_state is None:
                    if recorder.mode() != REPLAY:
                        return False
                    self._relive_state = real.get_transaction_status(self)
                self._relive_own = {}
            return True

        def cursor(self, *given: Any, **named: Any) -> Any:
            chosen = (
                named.get("cursor_factory") or (given[1] if len(given) > 1 else None) or self.cursor_factory
            )
            if chosen is None or chosen is real_cursor:
                named["cursor_factory"] = cursor
                given = given[:1]
            if not self._relive_meet():
                return real.cursor(self, *given, **named)
            self._relive_open()
            made = (named.get("cursor_factory") or chosen)(self, given[0] if given else named.get("name"))
            return made

        def _relive_open(self) -> None:
            if self._relive_closed:
                raise sys.modules["psycopg2"].InterfaceError("connection already closed")

        def _relive_end(self, statement: str, perform: Callable[[], None]) -> None:
            if not is_watching() or self.async_:
                return perform()
            if self._relive_meet():
                self._relive_open()
            asked = attempt(asked_of, "postgresql", _database(self), statement)
            if asked is None:
                return perform()
            through(_Ended(self), asked, perform)
            return None

        def commit(self) -> None:
            self._relive_end("COMMIT", lambda: real.commit(self))

        def rollback(self) -> None:
            self._relive_end("ROLLBACK", lambda: real.rollback(self))

        def close(self) -> None:
            if self._relive_meet():
                self._relive_closed = True
            else:
                real.close(self)

        def get_transaction_status(self) -> int:
            known = self._relive_state if self._relive_meet() else None
            return real.get_transaction_status(self) if known is None else known

        def get_parameter_status(self, parameter: str) -> Any:
            if self._relive_dsn is None:
                return real.get_parameter_status(self, parameter)
            return self._relive_told.get("parameters", {}).get(parameter)

        def get_backend_pid(self) -> Any:
            return (
                real.get_backend_pid(self)
                if self._relive_dsn is None
                else self._relive_told.get("backend_pid", 0)
            )

        def get_dsn_parameters(self) -> Any:
            if self._relive_dsn is None:
                return real.get_dsn_parameters(self)
            return sys.modules["psycopg2.extensions"].parse_dsn(self._relive_dsn)

        def set_client_encoding(self, encoding: Any) -> None:
            if not self._relive_meet():
                real.set_client_encoding(self, encoding)

        def set_isolation_level(self, level: Any) -> None:
            if self._relive_meet():
                self._relive_own["isolation_level"] = level  # type: ignore[index]
                self._relive_own["autocommit"] = level == 0  # type: ignore[index]
            else:
                real.set_isolation_level(self, level)

        def set_session(self, *given: Any, **named: Any) -> None:
            if not self._relive_meet():
                return real.set_session(self, *given, **named)  # type: ignore[no-any-return]
            named.update(zip(("isolation_level", "readonly", "deferrable", "autocommit"), given))
            self._relive_own.update(named)  # type: ignore[union-attr]
            return None

        def reset(self) -> None:
            if self._relive_meet():
                self._relive_state = 0
            else:
                real.reset(self)

        def cancel(self) -> None:
            if not self._relive_meet():
                real.cancel(self)

        @property
        def info(self) -> Any:
            return _Info(self) if self._relive_dsn is not None else real.info.__get__(self)

        @property
        def closed(self) -> int:
            return int(self._relive_closed) if self._relive_meet() else real.closed.__get__(self)

        @property
        def status(self) -> int:
            if not self._relive_meet():
                return real.status.__get__(self)  # type: ignore[no-any-return]
            return _BEGIN if self._relive_state in (2, 3) and not self.autocommit else _READY

    for name, otherwise in (
        ("autocommit", False),
        ("isolation_level", None),
        ("readonly", None),
        ("deferrable", None),
    ):
        setattr(Connection, name, _settable(real, name, otherwise))
    for name, key in (
        ("server_version", "server_version"),
        ("protocol_version", "protocol_version"),
        ("encoding", "encoding"),
    ):
        setattr(Connection, name, _told_attribute(real, name, key))
    Connection.dsn = property(
        lambda self: real.dsn.__get__(self) if self._relive_dsn is None else self._relive_dsn
    )
    return Connection


def _settable(real: Any, name: str, otherwise: Any) -> property:
    descriptor = getattr(real, name)

    def get(self: Any) -> Any:
        own = self._relive_own
        if own is not None and name in own:
            return own[name]
        return descriptor.__get__(self) if self._relive_dsn is None else otherwise

    def put(self: Any, value: Any) -> None:
        if self._relive_meet():
            self._relive_own[name] = value
        else:
            descriptor.__set__(self, value)

    return property(get, put, doc=descriptor.__doc__)


def _told_attribute(real: Any, name: str, key: str) -> property:
    descriptor = getattr(real, name)
    return property(
        lambda self: descriptor.__get__(self) if self._relive_dsn is None else self._relive_told.get(key),
        doc=descriptor.__doc__,
    )


class _Info:
    """``connection.info`` of a connection that was made in a replay."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        dsn = connection.get_dsn_parameters()
        self.dbname, self.user = dsn.get("dbname"), dsn.get("user")
        self.host, self.port = dsn.get("host"), int(dsn.get("port", 5432))
        self.dsn_parameters = dsn
        self.server_version = connection.server_version
        self.protocol_version = connection.protocol_version
        self.backend_pid = connection.get_backend_pid()

    @property
    def status(self) -> int:
        return int(self._connection.closed)

    @property
    def transaction_status(self) -> int:
        return self._connection.get_transaction_status()  # type: ignore[no-any-return]

    def parameter_status(self, name: str) -> Any:
        return self._connection.get_parameter_status(name)

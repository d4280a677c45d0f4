"""SQLite: ``sqlite3``, and what is built on it (SQLAlchemy, Django, aiosqlite).

The database is in the commit, so in a replay it is asked really, and what it said is recorded for the comparison. The types of the
module cannot be changed, so ``sqlite3.Connection`` and ``sqlite3.Cursor`` become subclasses of them, under the same names.
"""

import functools
import sys
from typing import Any, Callable, Dict, List, Tuple

from relive_recorder import context, quick
from relive_recorder.calls import describe_error, through
from relive_recorder.guard import attempt
from relive_recorder.kinds.query import (
    Query,
    RowsLater,
    asked_json,
    asked_of,
    asked_quickly,
    is_watching,
    record_rows_in_python,
    secret_columns,
)
from relive_recorder.recorder import FREE, OFF, RECORD, encode, mono, recorder

__all__ = ["change", "change_aiosqlite"]

_SECOND_BATCH = 4  # rows that are gathered behind one that was told alone


class _Sqlite(Query):
    system = "sqlite"
    local = True

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        return _answer(value), b"", {}

    def recorded(self, value: Any, seq: int) -> None:
        if value is not None and value.description is not None:
            value._relive_rows = _rows_of(value.description, seq)


_sqlite = _Sqlite()


def change_aiosqlite(module: Any) -> None:
    """It hands all work to a thread of its own, which belongs to no request."""
    real = module.Connection._execute

    @functools.wraps(real)
    async def execute(self: Any, fn: Any, *given: Any, **named: Any) -> Any:
        carried = attempt(context.carried, fn) if is_watching() else None
        return await real(self, fn if carried is None else carried, *given, **named)

    module.Connection._execute = execute


def change(module: Any) -> None:
    """Called when it has been imported."""
    names = {"__module__": module.Connection.__module__, "__doc__": module.Connection.__doc__}
    cursor = _cursor_class(module.Cursor)
    connection = _connection_class(module.Connection, module.Cursor, cursor)
    if quick.module is not None:  # it does what is plain, and has the rest done by these
        real = module.Cursor
        reals = real.execute, real.fetchone, real.fetchall, module.Connection.cursor
        told = cursor.execute, _executed, _failed, _alone, _many
        quick.module.sqlite(recorder, cursor, connection, *reals, *told)
    for made, real in ((cursor, module.Cursor), (connection, module.Connection)):
        made.__name__ = made.__qualname__ = real.__name__
        made.__module__, made.__doc__ = names["__module__"], real.__doc__
    real_connect = module.connect

    @functools.wraps(real_connect)
    def connect(*given: Any, **named: Any) -> Any:
        if len(given) > 5:
            if given[5] is real_connection:
                given = (*given[:5], connection, *given[6:])
        elif named.get("factory", real_connection) is real_connection:
            named["factory"] = connection
        return real_connect(*given, **named)

    real_connection = module.Connection
    module.Connection, module.Cursor, module.connect = connection, cursor, connect


def _answer(cursor: Any) -> Dict[str, Any]:
    if cursor is None:
        return {}
    columns = cursor.description
    answer: Dict[str, Any] = {"rowcount": cursor.rowcount}
    if columns is not None:
        answer["columns"] = [column[0] for column in columns]
    elif cursor.lastrowid is not None:
        answer["lastrowid"] = cursor.lastrowid
    return answer


def _cursor_class(real: Any) -> Any:
    real_execute, real_fetchone, real_fetchall = real.execute, real.fetchone, real.fetchall

    class Cursor(real):  # type: ignore[misc]
        # Of a query that gives rows: its number; that with a minus when one row was fetched alone and told; when more are fetched
        # one by one, the ``RowsLater`` that gathers them.
        _relive_rows: Any = None
        _relive_end: Any = None

        def execute(self, *given: Any) -> Any:
            if self._relive_rows is not None:
                _settle(self)
            asked = asked_quickly("sqlite", _database(self), *given) if 0 < len(given) < 3 else None
            if asked is None:
                return _execute(self, given, real_execute)
            try:
                value = real_execute(self, *given)
            except BaseException as error:
                _failed(asked, error)
                raise
            writer = recorder.quick
            if writer is None or writer.executed(asked, value) is None:
                _executed(asked, value)
            return value

        def executemany(self, *given: Any) -> Any:
            if not is_watching() or len(given) != 2:
                return real.executemany(self, *given)
            _settle(self)
            rows = _Passing(given[1])
            asked = attempt(asked_of, "sqlite", _database(self), given[0])
            if asked is None:
                return real.executemany(self, *given)
            try:
                return through(_sqlite, asked, lambda: rows.perform(self, real, given[0], asked))
            finally:
                rows.given = ()  # the call's frame would keep what was given alive

        def executescript(self, *given: Any) -> Any:
            if not is_watching() or not given:
                return real.executescript(self, *given)
            _settle(self)
            connection = self.connection
            connection._relive_own_end = True  # 3.10 calls its commit by name
            try:
                return _through(self, given, lambda: real.executescript(self, *given))
            finally:
                connection._relive_own_end = False

        def fetchone(self) -> Any:
            row = real_fetchone(self)
            if self._relive_rows is not None:
                _alone(self, row)
            return row

        def fetchmany(self, *given: Any, **named: Any) -> Any:
            rows = real.fetchmany(self, *given, **named)
            if self._relive_rows is not None:
                _many(self, rows)
            return rows

        def fetchall(self) -> Any:
            rows = real_fetchall(self)
            if self._relive_rows is not None:
                _many(self, rows)
            return rows

        def __next__(self) -> Any:
            try:
                row = real.__next__(self)
            except StopIteration:
                _settle(self)
                raise
            if self._relive_rows is not None:
                attempt(_one, self, row)
            return row

        def close(self) -> None:
            _settle(self)
            real.close(self)

    return Cursor


def _execute(cursor: Any, given: Tuple[Any, ...], real_execute: Callable[..., Any]) -> Any:
    mode = recorder.mode()
    if mode in (OFF, FREE) or not given:
        return real_execute(cursor, *given)
    if mode != RECORD:
        return _through(cursor, given, lambda: real_execute(cursor, *given))
    # As ``_through``, where these are the calls that come most often: the same event, made at once as JSON.
    asked = attempt(asked_json, "sqlite", _database(cursor), *given[:2])
    if asked is None:
        return real_execute(cursor, *given)
    began = mono()
    try:
        value = real_execute(cursor, *given)
    except BaseException as error:
        attempt(_emit_error, asked, began, error)
        raise
    attempt(_emit_answer, asked, began, value)
    return value


def _failed(asked: bytes, error: BaseException) -> None:
    attempt(_emit_error, *_asked_again(asked), error)


def _executed(asked: bytes, cursor: Any) -> None:
    attempt(_emit_answer, *_asked_again(asked), cursor)


def _asked_again(asked: bytes) -> Tuple[str, int]:
    """(JSON, when it began) of what ``asked_quickly`` gave."""
    return str(asked[8:], "ascii"), int.from_bytes(asked[:8], sys.byteorder)


def _emit_error(asked: str, began: int, error: BaseException) -> None:
    took = mono() - began
    recorder.emit_json("query", f'{{"asked":{asked},"error":{encode(describe_error(error))},"ns":{took}}}')


def _emit_answer(asked: str, began: int, cursor: Any) -> None:
    took = mono() - began
    columns = cursor.description
    if columns is not None:
        more = f',"columns":{_columns_json(columns)}'
    elif cursor.lastrowid is not None:
        more = f',"lastrowid":{cursor.lastrowid}'
    else:
        more = ""
    answer = f'{{"rowcount":{cursor.rowcount}{more}}}'
    seq = recorder.emit_json("query", f'{{"asked":{asked},"answer":{answer},"ns":{took}}}')
    if columns is not None:
        cursor._relive_rows = _rows_of(columns, seq)


def _rows_of(columns: Any, seq: int) -> Any:
    """The query's number; where columns are secret, what takes that out of its rows."""
    names = [column[0] for column in columns]
    return RowsLater(seq, names) if secret_columns(names) else seq


_columns: Dict[Any, str] = {}


def _columns_json(description: Any) -> str:
    known = _columns.get(description)
    if known is None:
        known = encode([column[0] for column in description])
        if len(_columns) < 1000 and len(known) < 1000:
            _columns[description] = known
    return known


class _Passing:
    """Parameters of ``executemany``, which may come from a generator: noted while SQLite takes them."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def perform(self, cursor: Any, real: Any, statement: Any, asked: Dict[str, Any]) -> Any:
        taken: List[Any] = []

        def passing() -> Any:
            for one in self.given:
                taken.append(one)
                yield one

        try:
            return real.executemany(cursor, statement, passing())
        finally:
            attempt(_add_parameters, asked, taken)


def _add_parameters(asked: Dict[str, Any], taken: List[Any]) -> None:
    asked.update(asked_of("", "", "", taken, many=True), **{name: asked[name] for name in list(asked)})


def _through(cursor: Any, given: Tuple[Any, ...], perform: Callable[[], Any]) -> Any:
    asked = attempt(asked_of, "sqlite", _database(cursor), *given[:2])
    return perform() if asked is None else through(_sqlite, asked, perform)


def _database(cursor: Any) -> str:
    return getattr(cursor.connection, "_relive_database", "")


class _AtEnd:
    """Goes with its cursor, and then writes what was gathered. A ``__del__`` of the cursor's would be called of each one."""

    __slots__ = ("later",)

    def __init__(self, later: RowsLater) -> None:
        self.later = later

    def __del__(self) -> None:
        attempt(self.later.flush)


def _alone(cursor: Any, row: Any) -> None:
    """It was fetched by ``fetchone``."""
    query = cursor._relive_rows
    if row is None:
        _settle(cursor)
    elif type(query) is int and query > 0:  # mostly there is one row only
        cursor._relive_rows = -query
        _record_rows(query, [row])
    else:
        attempt(_one, cursor, row, 1)


def _one(cursor: Any, row: Any, *batch: int) -> None:
    later = cursor._relive_rows
    if type(later) is not RowsLater:
        later = cursor._relive_rows = RowsLater(abs(later), batch=_SECOND_BATCH if later < 0 else 0)
    if cursor._relive_end is None or cursor._relive_end.later is not later:
        cursor._relive_end = _AtEnd(later)
    later.one(row, *batch)


def _many(cursor: Any, rows: List[Any]) -> None:
    query = cursor._relive_rows
    if type(query) is RowsLater:
        attempt(query.many, rows)
    else:
        _record_rows(abs(query), rows)


def _record_rows(query: int, rows: List[Any]) -> None:
    """As ``record_rows``; never raises."""
    writer = recorder.quick
    if rows and (writer is None or writer.rows(query, rows) is None):
        attempt(record_rows_in_python, query, rows)


def _settle(cursor: Any) -> None:
    """What was fetched from the last query is all that will be."""
    later = cursor._relive_rows
    if later is not None:
        cursor._relive_rows = None
        if type(later) is RowsLater:
            attempt(later.flush)


def _connection_class(real: Any, real_cursor: Any, cursor: Any) -> Any:
    make_cursor = real.cursor

    class Connection(real):  # type: ignore[misc]
        _relive_database = ""
        _relive_own_end = False

        def __init__(self, *given: Any, **named: Any) -> None:
            name = given[0] if given else named.get("database", "")
            self._relive_database = attempt(_name, name) or ""
            real.__init__(self, *given, **named)

        def cursor(self, *given: Any, **named: Any) -> Any:
            if not given and "factory" not in named:
                return real.cursor(self, cursor)
            if given and given[0] is real_cursor:
                given = (cursor,)
            return real.cursor(self, *given, **named)

        # Since 3.11 these make their cursor without asking ``cursor``.
        def execute(self, *given: Any) -> Any:
            made = make_cursor(self, cursor) if type(self) is Connection else self.cursor()
            return made.execute(*given)

        def executemany(self, *given: Any) -> Any:
            return self.cursor().executemany(*given)

        def executescript(self, *given: Any) -> Any:
            return self.cursor().executescript(*given)

        def commit(self) -> None:
            _end(self, "COMMIT", lambda: real.commit(self))

        def rollback(self) -> None:
            _end(self, "ROLLBACK", lambda: real.rollback(self))

        def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
            if not self.in_transaction:
                return real.__exit__(self, kind, error, trace)
            # Up to 3.10 it calls commit and rollback by their names, later not.
            self._relive_own_end = True
            try:
                return _ended(
                    self,
                    "COMMIT" if kind is None else "ROLLBACK",
                    lambda: real.__exit__(self, kind, error, trace),
                )
            finally:
                self._relive_own_end = False

    return Connection


def _end(connection: Any, statement: str, perform: Callable[[], None]) -> None:
    if connection._relive_own_end:
        perform()
    else:
        _ended(connection, statement, perform)


class _Ending(_Sqlite):
    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        return {}, b"", {}

    def recorded(self, value: Any, seq: int) -> None:
        pass


_ending = _Ending()


def _ended(connection: Any, statement: str, perform: Callable[[], Any]) -> Any:
    if not is_watching():
        return perform()
    asked = {"system": "sqlite", "database": connection._relive_database, "statement": statement}
    return through(_ending, asked, perform)


def _name(database: Any) -> str:
    import os

    name = os.fspath(database)
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)

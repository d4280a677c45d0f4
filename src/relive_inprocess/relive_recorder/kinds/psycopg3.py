"""PostgreSQL through psycopg 3, synchronous and asynchronous, and what is built on it (SQLAlchemy, Django, psycopg_pool).

One query of a cursor is one event, and so are the commands that a connection sends by itself (BEGIN, COMMIT, SAVEPOINT, FETCH of a
server-side cursor) and connecting. ``asked`` is taken before psycopg turns parameters into text, so it does not depend on whether a
statement is prepared. More in ``answer``: ``status`` (such as "INSERT 0 1"), ``types``, ``modifiers``, ``sizes``, ``binary``,
``transaction`` (the connection's state after it), ``then`` (further results of several statements in one). ``error`` has the fields
of the server's message in ``diag``.

In a replay the connection's end of libpq is exchanged for one without a server when it is first used. Not kept, and refused there:
COPY, ``stream()``, notifications, queries in pipeline mode.
"""

import functools
import sys
from typing import Any, Callable, Dict, Generator, List, Optional, Tuple

from relive_recorder.calls import KeptAnswer, NoAnswer, through, through_async, through_steps
from relive_recorder.guard import attempt
from relive_recorder.kinds.pgplayed import (
    PlayedResult,
    connection_class,
    encoded_result,
    encoded_rows_of,
    error_fields,
    escaping_class,
    played_results,
    transformer_class,
)
from relive_recorder.kinds.query import Query, asked_of, encoded_rows, is_watching
from relive_recorder.recorder import REPLAY, recorder

__all__ = ["change"]

_PARAMETERS = ("TimeZone", "DateStyle", "IntervalStyle", "client_encoding", "server_version", "search_path")
_ZONED = frozenset((1184, 1185, 3910, 3911))  # timestamptz and what is made of it
_classes: Dict[str, Any] = {}


def change(psycopg: Any) -> None:
    """Called when it has been imported."""
    cursor = _base_of(psycopg.Cursor, "BaseCursor")
    connection = _base_of(psycopg.Connection, "BaseConnection")
    declares = _base_of(psycopg.ServerCursor, "ServerCursorMixin")
    cursor._execute_gen = _executing(cursor._execute_gen)
    declares._declare_gen = _executing(declares._declare_gen, server=True)
    for name in ("_stream_send_gen", "_start_copy_gen"):
        setattr(cursor, name, _noted(getattr(cursor, name)))
    connection._exec_command = _commanding(connection._exec_command)
    connection._deallocate = _unless_played(connection._deallocate)
    for one in (psycopg.Cursor, psycopg.AsyncCursor):
        one.executemany = _many(one.executemany, one is psycopg.AsyncCursor)
    psycopg.Connection.wait = _waiting(psycopg.Connection.wait)
    psycopg.AsyncConnection.wait = _waiting_async(psycopg.AsyncConnection.wait)
    psycopg.Connection.connect = classmethod(_connecting(psycopg.Connection.connect.__func__))
    psycopg.AsyncConnection.connect = classmethod(_connecting_async(psycopg.AsyncConnection.connect.__func__))
    psycopg.connect = psycopg.Connection.connect  # it holds the method as it was


def _base_of(kind: Any, name: str) -> Any:
    return next(base for base in kind.__mro__ if base.__name__ == name)


_FAILED = 3  # PQTRANS_INERROR


class _Postgres(Query):
    system = "postgresql"

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def broken(self, text: str) -> BaseException:
        return sys.modules["psycopg"].OperationalError(text)  # type: ignore[no-any-return]

    def encode_error(self, error: BaseException) -> Dict[str, Any]:
        encoded = super().encode_error(error)
        result = getattr(error, "pgresult", None)
        if result is not None:
            encoded["diag"] = recorder.scrubber.packed(error_fields(result))
        if self.connection is not None:
            encoded["transaction"] = int(self.connection.pgconn.transaction_status)
        return encoded

    def rebuild_error(self, kept: KeptAnswer) -> BaseException:
        error = kept.fields["error"]
        if self.connection is not None and "transaction" in error:
            self.connection.pgconn.transaction_status = error["transaction"]
        if "diag" not in error:
            return super().rebuild_error(kept)
        return sys.modules["psycopg"].errors.error_from_result(  # type: ignore[no-any-return]
            PlayedResult.of_error(error, "utf-8"), encoding="utf-8"
        )

    def ended(self, tag: str, goes_on: bool) -> Optional[Dict[str, Any]]:
        if self.connection is None:
            return None
        has_failed = int(self.connection.pgconn.transaction_status) == _FAILED
        if has_failed and tag == "COMMIT":
            tag = "ROLLBACK"  # as the server does
        return {"status": tag, "execution": 1, "rowcount": -1, "transaction": 2 if goes_on else 0}

    def asked(self, statement: Any, parameters: Any = None, many: bool = False) -> Dict[str, Any]:
        connection = self.connection
        database = getattr(connection, "_relive_database", None)
        if database is None:
            database = connection._relive_database = connection.pgconn.db.decode("utf-8", "replace")
        if not isinstance(statement, (str, bytes)):
            statement = statement.as_string(None) if hasattr(statement, "as_string") else statement
        return asked_of("postgresql", database, statement, parameters, many)

    def encoded_results(self, results: List[Any]) -> Tuple[Any, bytes, Dict[str, Any]]:
        """``encode`` of the results of one query."""
        pgconn = self.connection.pgconn
        answer: Dict[str, Any] = {}
        data, more = b"", {}
        for number, result in enumerate(results):
            encoded = encoded_result(result)
            if "columns" in encoded:
                rows = encoded_rows_of(result, pgconn._encoding)
                fields, body, about = encoded_rows(rows, result.ntuples, encoded["columns"])
                encoded.update(fields)
                if number == 0:
                    data, more = body, about
                elif body:
                    encoded["rows_cut"] = result.ntuples
                if not _ZONED.isdisjoint(encoded["types"]):
                    answer.setdefault("parameters", {})["TimeZone"] = _status_of(pgconn, "TimeZone")
            if number == 0:
                answer.update(encoded)
            else:
                answer.setdefault("then", []).append(encoded)
        answer["transaction"] = int(pgconn.transaction_status)
        return answer, data, more

    def results_again(self, kept: KeptAnswer) -> List[PlayedResult]:
        """The results again, with the connection in the state it was in after them."""
        pgconn, answer = self.connection.pgconn, kept.fields["answer"]
        pgconn.transaction_status = answer.get("transaction", 0)
        if "parameters" in answer:
            pgconn._encoded = {
                **pgconn._encoded,
                "parameters": {**pgconn._encoded.get("parameters", {}), **answer["parameters"]},
            }
        return played_results(kept, pgconn._encoding)


def _status_of(pgconn: Any, name: str) -> Optional[str]:
    value = pgconn.parameter_status(name.encode())
    return None if value is None else value.decode("utf-8", "replace")


class _Executed(_Postgres):
    """A query of a cursor. The answer is its results, and it comes back into the cursor."""

    def __init__(self, cursor: Any, server: bool = False) -> None:
        super().__init__(cursor._conn)
        self.cursor = cursor
        self.server = server

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        cursor = self.cursor
        answer, data, more = self.encoded_results(cursor._results)
        if not cursor._results:
            answer["rowcount"] = cursor._rowcount
        return answer, data, more

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        cursor, results = self.cursor, self.results_again(kept)
        _empty(cursor)
        if "columns" in kept.fields["answer"] or "execution" in kept.fields["answer"]:
            cursor._results = results
            if self.server:
                cursor._described = True
                cursor._format = 1 if cursor.format else 0
                cursor._select_current_result(0, format=cursor._format)
            else:
                cursor._select_current_result(0)
        else:
            cursor._rowcount = kept.fields["answer"].get("rowcount", -1)
        return None

    def rebuild_error(self, kept: KeptAnswer) -> BaseException:
        _empty(self.cursor)
        return super().rebuild_error(kept)


class _Commanded(_Postgres):
    """A command that a connection sends by itself; its value is the result."""

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        return self.encoded_results([] if value is None else [value])

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        return self.results_again(kept)[0]


def _empty(cursor: Any) -> None:
    """A cursor as psycopg has it before a query, but for a transformer that reads what is played."""
    cursor._pgconn = cursor._conn.pgconn
    cursor._reset()
    cursor._tx = _made("transformer")(cursor)


def _made(name: str) -> Any:
    """The classes of ``pgplayed``, made when they are first needed."""
    if not _classes:
        psycopg = sys.modules["psycopg"]
        from importlib import import_module

        slow = import_module("psycopg._py_transformer")
        _classes["connection"] = connection_class(psycopg.pq.PGconn)
        escaping = escaping_class(psycopg.pq.Escaping, _classes["connection"])
        for module in (psycopg.pq, *(sys.modules[f"psycopg.{name}"] for name in ("sql", "adapt"))):
            if hasattr(module, "Escaping"):
                module.Escaping = escaping
        _classes["transformer"] = transformer_class(psycopg.adapt.AdaptersMap, slow.Transformer)
    return _classes[name]


def _without_server(connection: Any) -> bool:
    """In a replay: give it an end of libpq that needs no server, if it has none yet. False when this is no replay."""
    if recorder.mode() != REPLAY:
        return False
    played = _made("connection")
    if not isinstance(connection.pgconn, played):
        connection.pgconn = played.made(connection.pgconn, {})
    return True


# -- cursors -----------------------------------------------------------------------------------------------------------


def _executing(real: Callable[..., Any], server: bool = False) -> Callable[..., Any]:
    @functools.wraps(real)
    def execute(self: Any, query: Any, params: Any = None, *given: Any, **named: Any) -> Any:
        connection = self._conn
        if not is_watching() or self._closed or connection._pipeline:
            return (yield from _refused_if_played(connection, real(self, query, params, *given, **named)))
        _without_server(connection)
        channel = _Executed(self, server)
        asked = attempt(channel.asked, query, params)
        if asked is None:
            return (yield from real(self, query, params, *given, **named))
        # A transaction that begins now is a query of its own; psycopg will then find it begun.
        yield from connection._start_query()
        yield from through_steps(channel, asked, lambda: real(self, query, params, *given, **named))

    return execute


def _refused_if_played(connection: Any, steps: Any) -> Generator[Any, Any, Any]:
    if connection._pipeline and _without_server(connection):
        steps.close()
        raise _not_kept(connection, "a query in pipeline mode")
    return (yield from steps)


def _not_kept(connection: Any, what: str) -> BaseException:
    return _Postgres(connection).broken(f"{what} is not recorded, so a replay cannot answer it")


def _noted(real: Callable[..., Any]) -> Callable[..., Any]:
    """COPY and ``stream()``: that they began is recorded, what they carried is not."""

    @functools.wraps(real)
    def begin(self: Any, *given: Any, **named: Any) -> Any:
        if not is_watching():
            return (yield from real(self, *given, **named))
        connection = self._conn
        if _without_server(connection):
            raise _not_kept(connection, "what COPY and stream() carry")
        channel = _Noted(connection)
        asked = attempt(channel.asked, *given[:2])
        if asked is None:
            return (yield from real(self, *given, **named))
        return (yield from through_steps(channel, asked, lambda: real(self, *given, **named)))

    return begin


class _Noted(_Postgres):
    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        return {"not_kept": True}, b"", {}


class _Many(_Executed):
    """``executemany``: in ``then`` the results of all but the first, where it returns rows."""


def _many(real: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
    @functools.wraps(real)
    def executemany(self: Any, query: Any, params_seq: Any, **named: Any) -> Any:
        if not is_watching() or self._closed or self._conn._pipeline:
            return real(self, query, params_seq, **named)
        _without_server(self._conn)
        params_seq = list(params_seq)
        channel = _Many(self)
        asked = attempt(channel.asked, query, params_seq, True)
        if asked is None:
            return real(self, query, params_seq, **named)
        if is_async:
            return _many_async(self, channel, asked, lambda: real(self, query, params_seq, **named))
        with self._conn.lock:
            self._conn.wait(self._conn._start_query())
        return through(channel, asked, lambda: real(self, query, params_seq, **named))

    if is_async:

        @functools.wraps(real)
        async def executemany_async(self: Any, query: Any, params_seq: Any, **named: Any) -> Any:
            return await executemany(self, query, params_seq, **named)

        return executemany_async
    return executemany


async def _many_async(cursor: Any, channel: Any, asked: Any, perform: Callable[[], Any]) -> Any:
    async with cursor._conn.lock:
        await cursor._conn.wait(cursor._conn._start_query())
    return await through_async(channel, asked, perform)


# -- connections -------------------------------------------------------------------------------------------------------


def _commanding(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def command(self: Any, command: Any, *given: Any, **named: Any) -> Any:
        if not is_watching() or self._pipeline or getattr(self, "_relive_upkeep", False):
            return (yield from real(self, command, *given, **named))
        _without_server(self)
        channel = _Commanded(self)
        asked = attempt(channel.asked, command)
        if asked is None:
            return (yield from real(self, command, *given, **named))
        return (yield from through_steps(channel, asked, lambda: real(self, command, *given, **named)))

    return command


def _unless_played(real: Callable[..., Any]) -> Callable[..., Any]:
    """Giving prepared statements back is psycopg's own upkeep: not recorded, and in a replay there are none."""

    @functools.wraps(real)
    def deallocate(self: Any, *given: Any) -> Any:
        if is_watching() and _without_server(self):
            return None
        self._relive_upkeep = True
        try:
            return (yield from real(self, *given))
        finally:
            self._relive_upkeep = False

    return deallocate


def _waiting(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def wait(self: Any, gen: Any, *given: Any, **named: Any) -> Any:
        if is_watching() and _without_server(self):
            return _at_once(self, gen)
        return real(self, gen, *given, **named)

    return wait


def _waiting_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def wait(self: Any, gen: Any, *given: Any, **named: Any) -> Any:
        if is_watching() and _without_server(self):
            return _at_once(self, gen)
        return await real(self, gen, *given, **named)

    return wait


def _at_once(connection: Any, steps: Any) -> Any:
    """Run what is answered without a network; it has nothing to wait for."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    steps.close()
    raise _not_kept(connection, "what this waits for from the server")


class _Connected(Query):
    system = "postgresql"

    def __init__(self, make: Callable[[Dict[str, Any]], Any]) -> None:
        self.make = make

    def broken(self, text: str) -> BaseException:
        return NoAnswer(text)

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        pgconn = value.pgconn
        encoded: Dict[str, Any] = {"parameters": {name: _status_of(pgconn, name) for name in _PARAMETERS}}
        for name in ("db", "user", "host", "port"):
            encoded[name] = getattr(pgconn, name).decode("utf-8", "replace")
        encoded["server_version"] = pgconn.server_version
        encoded["backend_pid"] = pgconn.backend_pid
        encoded["protocol_version"] = pgconn.protocol_version
        return recorder.scrubber.packed(encoded), b"", {}

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        return self.make(kept.fields["answer"])


def _connect_asked(kind: Any, conninfo: Any, named: Dict[str, Any]) -> Dict[str, Any]:
    psycopg = sys.modules["psycopg"]
    parameters = {
        name: value
        for name, value in named.items()
        if name not in ("autocommit", "prepare_threshold", "context", "row_factory", "cursor_factory")
    }
    found = psycopg.conninfo.conninfo_to_dict(conninfo, **parameters)
    if found.get("password"):
        recorder.scrubber.learn(str(found["password"]))
    about = {name: str(found[name]) for name in ("host", "port", "user") if found.get(name) is not None}
    return {**asked_of("postgresql", str(found.get("dbname", "")), "CONNECT", about)}


def _maker(kind: Any, named: Dict[str, Any]) -> Callable[[Dict[str, Any]], Any]:
    """What makes a connection as ``connect`` would, without a server."""

    def make(encoded: Dict[str, Any]) -> Any:
        connection = kind(_made("connection").made(None, encoded))
        connection._autocommit = bool(named.get("autocommit", False))
        for name in ("row_factory", "cursor_factory"):
            if named.get(name):
                setattr(connection, name, named[name])
        context = named.get("context")
        if context:
            connection._adapters = type(connection.adapters)(context.adapters)
        connection.prepare_threshold = named.get("prepare_threshold", 5)
        return connection

    return make


def _connecting(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def connect(cls: Any, conninfo: str = "", **named: Any) -> Any:
        asked = attempt(_connect_asked, cls, conninfo, named) if is_watching() else None
        if asked is None:
            return real(cls, conninfo, **named)
        make = _maker(cls, named)
        try:
            return through(_Connected(make), asked, lambda: real(cls, conninfo, **named))
        except NoAnswer:
            return make({"db": asked["database"], **asked.get("parameters", {})})

    return connect


def _connecting_async(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def connect(cls: Any, conninfo: str = "", **named: Any) -> Any:
        asked = attempt(_connect_asked, cls, conninfo, named) if is_watching() else None
        if asked is None:
            return await real(cls, conninfo, **named)
        make = _maker(cls, named)
        try:
            return await through_async(_Connected(make), asked, lambda: real(cls, conninfo, **named))
        except NoAnswer:
            return make({"db": asked["database"], **asked.get("parameters", {})})

    return connect

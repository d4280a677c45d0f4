"""PostgreSQL through asyncpg, and what is built on it (SQLAlchemy).

One query is one event, whatever asyncpg says to the server for it (preparing, asking for types). Preparing a statement by
itself (``Connection.prepare``) is the statement with ``prepare`` true, rows of a cursor are the statement with ``fetch`` (how
many were asked for). More in ``answer``: ``status``, ``completed`` (no further rows), ``transaction`` (true while in one).
``error`` has the fields of the server's message in ``message``.

Not kept: values that ``values`` does not know (ranges, composites, networks), COPY, notifications. Rows come back as
``asyncpg.Record``, also where a class of the service's own was asked for.
"""

import functools
import struct
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from relive_recorder.calls import KeptAnswer, NoAnswer, through_async
from relive_recorder.guard import attempt
from relive_recorder.kinds.query import Query, asked_of, encoded_rows, is_watching, rows_again
from relive_recorder.recorder import REPLAY, recorder
from relive_recorder.values import NotKept, pack, unpack

__all__ = ["change_connecting", "change_connection", "change_protocol"]

_PARAMETERS = ("server_version", "client_encoding", "TimeZone", "integer_datetimes", "application_name")


def change_protocol(module: Any) -> None:
    """Called when it has been imported."""
    protocol = module.Protocol
    protocol._relive_within = False  # an event is under way that covers all that is said meanwhile
    protocol._relive_database = ""
    protocol._relive_state = None  # in a replay: whether in a transaction
    protocol.query = _asking(protocol.query, _asked_query, _StatusQuery)
    protocol.bind_execute = _asking(protocol.bind_execute, _asked_bound, _Fetched)
    protocol.bind_execute_many = _asking(protocol.bind_execute_many, _asked_many, _StatusQuery)
    protocol.bind = _asking(protocol.bind, _asked_portal, _StatusQuery)
    protocol.execute = _asking(protocol.execute, _asked_more, _Fetched)
    for name in ("close_statement", "close_portal"):
        setattr(protocol, name, _unless_played(getattr(protocol, name)))
    for name in ("copy_in", "copy_out"):
        setattr(protocol, name, _noted(getattr(protocol, name)))
    protocol.close = _closing(protocol.close)
    protocol.connection_lost = _staying(protocol.connection_lost)
    protocol.eof_received = _staying(protocol.eof_received)
    protocol.is_in_transaction = _in_transaction(protocol.is_in_transaction)


def change_connection(module: Any) -> None:
    """Called when it has been imported."""
    connection = module.Connection
    connection._execute = _executing(connection._execute)
    connection._executemany = _executing_many(connection._executemany)
    connection._get_statement = _preparing(connection._get_statement)


def change_connecting(module: Any) -> None:
    """Called when it has been imported."""
    module._connect_addr = _connecting(module._connect_addr)


# -- channels ----------------------------------------------------------------------------------------------------------


class _StatusQuery(Query):
    """An answer that is plain: a status, or nothing."""

    system = "postgresql"

    def __init__(self, protocol: Any, extra: bool = True, record_class: Any = None) -> None:
        self.protocol = protocol
        self.extra = extra  # the value is (rows, status, completed) instead of rows

    def broken(self, text: str) -> BaseException:
        return sys.modules["asyncpg"].ConnectionDoesNotExistError(text)  # type: ignore[no-any-return]

    def encode_error(self, error: BaseException) -> Dict[str, Any]:
        encoded = super().encode_error(error)
        if hasattr(error, "as_dict"):
            encoded["message"] = recorder.scrubber.packed(pack(dict(error.__dict__)))
        encoded["transaction"] = self.protocol.is_in_transaction()
        return encoded

    def rebuild_error(self, kept: KeptAnswer) -> BaseException:
        encoded = kept.fields["error"]
        self.protocol._relive_state = bool(encoded.get("transaction"))
        error = super().rebuild_error(kept)
        if "message" in encoded:
            error.__dict__.update(unpack(encoded["message"]))
        return error

    def ended(self, tag: str, goes_on: bool) -> Optional[Dict[str, Any]]:
        return {"transaction": goes_on, "status": tag}

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        answer: Dict[str, Any] = {"transaction": self.protocol.is_in_transaction()}
        if value is not None:
            answer["status"] = recorder.scrubber.packed(pack(value))
        return answer, b"", {}

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        self.protocol._relive_state = bool(kept.fields["answer"].get("transaction"))
        return unpack(kept.fields["answer"].get("status"))


class _Fetched(_StatusQuery):
    """Rows."""

    def ended(self, tag: str, goes_on: bool) -> Optional[Dict[str, Any]]:
        nothing: Dict[str, Any] = {"rowcount": 0, "columns": [], "rows": []}
        return {"transaction": goes_on, "completed": True, "status": tag, **nothing}

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        rows, status, completed = value if self.extra else (value, None, True)
        answer: Dict[str, Any] = {
            "transaction": self.protocol.is_in_transaction(),
            "completed": bool(completed),
        }
        if status is not None:
            answer["status"] = status.decode("ascii", "replace") if isinstance(status, bytes) else status
        if rows is None:
            return answer, b"", {}
        answer["rowcount"] = len(rows)
        answer["columns"] = list(rows[0].keys()) if rows else []
        fields, data, more = encoded_rows((_encoded_row(row) for row in rows), len(rows), answer["columns"])
        answer.update(fields)
        return answer, data, more

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        answer = kept.fields["answer"]
        self.protocol._relive_state = bool(answer.get("transaction"))
        rows = None
        if "rowcount" in answer:
            names = {name: number for number, name in enumerate(answer["columns"])}
            make = _records()
            rows = [make(names, tuple(_value_again(one) for one in row)) for row in rows_again(kept, answer)]
        if not self.extra:
            return rows
        status = answer.get("status")
        return rows, status.encode() if isinstance(status, str) else status, answer.get("completed", True)


def _records() -> Callable[[Any, Any], Any]:
    return sys.modules["asyncpg.protocol.protocol"]._create_record  # type: ignore[no-any-return]


def _encoded_row(row: Any) -> List[Any]:
    return [_encoded_value(value) for value in row]


def _encoded_value(value: Any) -> Any:
    import uuid

    if isinstance(value, list):
        return [_encoded_value(one) for one in value]
    if isinstance(value, uuid.UUID):  # a class of asyncpg's own
        return {"$": ["uuid", str(value)]}
    return pack(value)


def _value_again(encoded: Any) -> Any:
    if isinstance(encoded, list):
        return [_value_again(one) for one in encoded]
    value = unpack(encoded)
    if type(encoded) is dict and encoded["$"][0] == "uuid":
        return sys.modules["asyncpg.pgproto.pgproto"].UUID(value.bytes)
    return value


# -- the protocol ------------------------------------------------------------------------------------------------------


def _asked_query(protocol: Any, query: Any, timeout: Any = None) -> Tuple[Dict[str, Any], bool]:
    return asked_of("postgresql", protocol._relive_database, query), True


def _asked_bound(
    protocol: Any, state: Any, args: Any, portal_name: str, limit: int, return_extra: bool, timeout: Any
) -> Tuple[Dict[str, Any], bool]:
    asked = asked_of("postgresql", protocol._relive_database, state.query, args)
    if limit:
        asked["fetch"] = limit
    return asked, return_extra


def _asked_many(
    protocol: Any, state: Any, args: Any, portal_name: str, timeout: Any, return_rows: bool = False
) -> Tuple[Dict[str, Any], bool]:
    return asked_of("postgresql", protocol._relive_database, state.query, args, many=True), True


def _asked_portal(
    protocol: Any, state: Any, args: Any, portal_name: str, timeout: Any
) -> Tuple[Dict[str, Any], bool]:
    return {**asked_of("postgresql", protocol._relive_database, state.query, args), "fetch": 0}, True


def _asked_more(
    protocol: Any, state: Any, portal_name: str, limit: int, return_extra: bool, timeout: Any
) -> Tuple[Dict[str, Any], bool]:
    return {**asked_of("postgresql", protocol._relive_database, state.query), "fetch": limit}, return_extra


def _asking(real: Callable[..., Any], ask: Callable[..., Any], channel: Any) -> Callable[..., Any]:
    @functools.wraps(real)
    async def said(self: Any, *given: Any, **named: Any) -> Any:
        if self._relive_within or not is_watching():
            return await real(self, *given, **named)
        if ask is _asked_many:  # what is read to be asked must be there to be sent
            given, named = _listed(given, named)
        found = attempt(ask, self, *given, **named)
        if found is None:
            return await real(self, *given, **named)
        asked, extra = found
        return await through_async(channel(self, extra), asked, lambda: real(self, *given, **named))

    return said


def _listed(given: Any, named: Any) -> Tuple[Any, Any]:
    if "args" in named:
        return given, {**named, "args": list(named["args"])}
    return (given[0], list(given[1]), *given[2:]), named


def _unless_played(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def said(self: Any, *given: Any, **named: Any) -> Any:
        if recorder.mode() == REPLAY:
            return None
        return await real(self, *given, **named)

    return said


def _noted(real: Callable[..., Any]) -> Callable[..., Any]:
    """COPY: that it was is recorded, what it carried is not."""

    @functools.wraps(real)
    async def said(self: Any, copy_stmt: Any, *given: Any, **named: Any) -> Any:
        if not is_watching():
            return await real(self, copy_stmt, *given, **named)
        if recorder.mode() == REPLAY:
            raise _StatusQuery(self).broken("what COPY carries is not recorded, so a replay cannot answer it")
        asked = attempt(asked_of, "postgresql", self._relive_database, copy_stmt)
        if asked is None:
            return await real(self, copy_stmt, *given, **named)
        return await through_async(_StatusQuery(self), asked, lambda: real(self, copy_stmt, *given, **named))

    return said


def _closing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def close(self: Any, timeout: Any) -> None:
        if recorder.mode() == REPLAY:
            self.abort()
        else:
            await real(self, timeout)

    return close


def _staying(real: Callable[..., Any]) -> Callable[..., Any]:
    """In a replay the other end is gone, and the connection works all the same."""

    @functools.wraps(real)
    def lost(self: Any, *given: Any) -> Any:
        return None if recorder.mode() == REPLAY else real(self, *given)

    return lost


def _in_transaction(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def is_in_transaction(self: Any) -> bool:
        known = self._relive_state
        return real(self) if known is None or recorder.mode() != REPLAY else known  # type: ignore[no-any-return]

    return is_in_transaction


# -- connections -------------------------------------------------------------------------------------------------------


async def _within(protocol: Any, perform: Callable[[], Any]) -> Any:
    protocol._relive_within = True
    try:
        return await perform()
    finally:
        protocol._relive_within = False


def _executing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def execute(self: Any, query: Any, args: Any, limit: Any, timeout: Any, **named: Any) -> Any:
        protocol = self._protocol
        if not is_watching() or protocol._relive_within:
            return await real(self, query, args, limit, timeout, **named)
        asked = attempt(asked_of, "postgresql", protocol._relive_database, query, args)
        if asked is None:
            return await real(self, query, args, limit, timeout, **named)
        if limit:
            asked["fetch"] = limit
        channel = _Fetched(protocol, named.get("return_status", False))
        perform = functools.partial(real, self, query, args, limit, timeout, **named)
        with self._stmt_exclusive_section if recorder.mode() == REPLAY else _Nothing():
            return await through_async(channel, asked, lambda: _within(protocol, perform))

    return execute


class _Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_given: Any) -> None:
        pass


def _executing_many(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def executemany(self: Any, query: Any, args: Any, timeout: Any, *given: Any, **named: Any) -> Any:
        protocol = self._protocol
        if not is_watching() or protocol._relive_within:
            return await real(self, query, args, timeout, *given, **named)
        args = list(args)
        asked = attempt(asked_of, "postgresql", protocol._relive_database, query, args, True)
        if asked is None:
            return await real(self, query, args, timeout, *given, **named)
        returns = bool(given[0] if given else named.get("return_rows"))
        channel = _Fetched(protocol, False) if returns else _StatusQuery(protocol)
        perform = functools.partial(real, self, query, args, timeout, *given, **named)
        return await through_async(channel, asked, lambda: _within(protocol, perform))

    return executemany


class _Prepared(_StatusQuery):
    """A statement that was prepared by itself. Its value is asyncpg's state of it, in a replay a ``_Statement``."""

    def __init__(self, protocol: Any, query: str, record_class: Any) -> None:
        super().__init__(protocol)
        self.query = query
        self.record_class = record_class

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        columns = [[one.name, *one.type] for one in value._get_attributes()]
        answer = {
            "transaction": self.protocol.is_in_transaction(),
            "attributes": columns,
            "parameters": [list(one) for one in value._get_parameters()],
        }
        return answer, b"", {}

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        super().rebuild_kept(kept)
        return _Statement(self.query, self.record_class, kept.fields["answer"])


class _Statement:
    """In the place of ``PreparedStatementState`` in a replay."""

    def __init__(self, query: str, record_class: Any, encoded: Dict[str, Any]) -> None:
        self.query = query
        self.record_class = record_class
        self.ignore_custom_codec = False
        self.name = "replayed"
        self.closed = False
        self.prepared = True
        self.refs = 0
        self._encoded = encoded

    def attach(self) -> None:
        self.refs += 1

    def detach(self) -> None:
        self.refs -= 1

    def mark_closed(self) -> None:
        self.closed = True

    def mark_unprepared(self) -> None:
        self.prepared = False

    def _get_attributes(self) -> Any:
        types = sys.modules["asyncpg.types"]
        encoded = self._encoded.get("attributes", ())
        return tuple(types.Attribute(name, types.Type(*about)) for name, *about in encoded)

    def _get_parameters(self) -> Any:
        types = sys.modules["asyncpg.types"]
        return tuple(types.Type(*about) for about in self._encoded.get("parameters", ()))


def _preparing(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def get_statement(self: Any, query: Any, timeout: Any, **named: Any) -> Any:
        protocol = self._protocol
        if not is_watching() or protocol._relive_within:
            return await real(self, query, timeout, **named)
        record_class = named.get("record_class") or protocol.get_record_class()
        key = (query, record_class, named.get("ignore_custom_codec", False))
        cached = named.get("use_cache", True) and self._stmt_cache.get(key)
        if cached:
            return cached
        asked = attempt(asked_of, "postgresql", protocol._relive_database, query)
        if asked is None:
            return await real(self, query, timeout, **named)
        asked["prepare"] = True
        perform = functools.partial(real, self, query, timeout, **named)
        channel = _Prepared(protocol, query, record_class)
        statement = await through_async(channel, asked, lambda: _within(protocol, perform))
        if type(statement) is _Statement and named.get("use_cache", True) and self._stmt_cache_enabled:
            self._stmt_cache.put(key, statement)
        return statement

    return get_statement


# -- connecting --------------------------------------------------------------------------------------------------------


class _NoTransport:
    """In the place of a connection's transport in a replay."""

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return False

    def write(self, _data: Any) -> None:
        pass

    writelines = write

    def close(self) -> None:
        pass

    abort = pause_reading = resume_reading = close


class _Connected(Query):
    system = "postgresql"

    def __init__(self, given: Dict[str, Any]) -> None:
        self.given = given

    def broken(self, text: str) -> BaseException:
        return NoAnswer(text)

    def encode(self, value: Any) -> Tuple[Any, bytes, Dict[str, Any]]:
        settings = value._protocol.get_settings()
        parameters = {name: getattr(settings, name, None) for name in _PARAMETERS}
        return {"parameters": parameters, "backend_pid": value._protocol.get_server_pid()}, b"", {}

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        return self.made(kept.fields["answer"])

    def made(self, encoded: Dict[str, Any]) -> Any:
        """A connection as asyncpg makes it, its handshake said by us."""
        given = self.given
        kind = sys.modules["asyncpg.protocol"].Protocol
        transport, ready = _NoTransport(), given["loop"].create_future()
        protocol = kind(given["addr"], ready, given["params"], given["record_class"], given["loop"])
        protocol.connection_made(transport)
        protocol.data_received(_handshake(encoded))
        if not ready.done():
            raise NotKept("a handshake that asyncpg takes")
        connection = given["connection_class"](
            protocol, transport, given["loop"], given["addr"], given["config"], given["params"]
        )
        protocol.set_connection(connection)
        protocol._relive_state = False
        return connection


def _handshake(encoded: Dict[str, Any]) -> bytes:
    """AuthenticationOk, ParameterStatus, BackendKeyData, ReadyForQuery: see "Message Formats" of PostgreSQL's manual."""
    parameters = {"server_version": "15.0", "client_encoding": "UTF8", "TimeZone": "UTC"}
    parameters.update(
        {name: value for name, value in encoded.get("parameters", {}).items() if value is not None}
    )
    said = b"R" + struct.pack("!II", 8, 0)
    for name, value in parameters.items():
        text = name.encode() + b"\0" + str(value).encode() + b"\0"
        said += b"S" + struct.pack("!I", len(text) + 4) + text
    said += b"K" + struct.pack("!III", 12, encoded.get("backend_pid") or 0, 0)
    return said + b"Z" + struct.pack("!I", 5) + b"I"


def _connecting(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    async def connect(**named: Any) -> Any:
        asked = attempt(_connect_asked, named) if is_watching() else None
        if asked is None:
            return await real(**named)
        channel = _Connected(named)
        connection: Optional[Any] = None
        try:
            connection = await through_async(channel, asked, lambda: real(**named))
        except NoAnswer:
            connection = channel.made({})
        connection._protocol._relive_database = asked["database"]
        return connection

    return connect


def _connect_asked(named: Dict[str, Any]) -> Dict[str, Any]:
    parameters, address = named["params"], named["addr"]
    if isinstance(parameters.password, str):
        recorder.scrubber.learn(parameters.password)
    host, port = address if isinstance(address, (tuple, list)) else (address, 0)
    about = {"host": host, "port": port, "user": parameters.user}
    return asked_of("postgresql", parameters.database or "", "CONNECT", about)

"""Connections of psycopg2: the ends of their transactions recorded, and in a replay themselves without libpq."""

import sys
from typing import Any, Callable, Dict, Optional

from relive_recorder.calls import through
from relive_recorder.guard import attempt
from relive_recorder.kinds.psycopg2_calls import TransactionEnd, database_of
from relive_recorder.kinds.query import asked_of, is_watching
from relive_recorder.recorder import REPLAY, recorder

__all__ = ["connection_class"]

_READY, _BEGIN = 1, 2  # psycopg2.extensions.STATUS_*


def connection_class(real: Any, real_cursor: Any, cursor: Any) -> Any:
    """The subclass of psycopg2's connection that takes its place, with cursors of the class ``cursor``."""

    class Connection(real):  # type: ignore[misc]
        _relive_encoded: Any = None  # what is known of one that was connected in a replay
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
            asked = attempt(asked_of, "postgresql", database_of(self), statement)
            if asked is None:
                return perform()
            through(TransactionEnd(self), asked, perform)
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
            return self._relive_encoded.get("parameters", {}).get(parameter)

        def get_backend_pid(self) -> Any:
            return (
                real.get_backend_pid(self)
                if self._relive_dsn is None
                else self._relive_encoded.get("backend_pid", 0)
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
        setattr(Connection, name, _encoded_attribute(real, name, key))
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


def _encoded_attribute(real: Any, name: str, key: str) -> property:
    descriptor = getattr(real, name)
    return property(
        lambda self: descriptor.__get__(self) if self._relive_dsn is None else self._relive_encoded.get(key),
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

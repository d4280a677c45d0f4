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
from typing import Any, Dict

from relive_recorder.calls import NoAnswer, through
from relive_recorder.guard import attempt
from relive_recorder.kinds.psycopg2_calls import Connected
from relive_recorder.kinds.psycopg2_connections import connection_class
from relive_recorder.kinds.psycopg2_cursors import cursor_class
from relive_recorder.kinds.query import asked_of, is_watching
from relive_recorder.recorder import recorder

__all__ = ["change", "change_extensions"]


def change_extensions(module: Any) -> None:
    """Called when it has been imported."""
    real_cursor, real_connection = module.cursor, module.connection
    cursor = cursor_class(real_cursor)
    connection = connection_class(real_connection, real_cursor, cursor)
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
        channel = Connected(kind, dsn)
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

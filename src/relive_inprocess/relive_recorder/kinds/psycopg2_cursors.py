"""Cursors of psycopg2: their queries recorded, and in a replay their rows out of the recording."""

import sys
from typing import Any, Callable, Dict, List, Optional

from relive_recorder.calls import through
from relive_recorder.guard import attempt
from relive_recorder.kinds.psycopg2_calls import CursorResult, ExecutedQuery, database_of
from relive_recorder.kinds.query import asked_of, is_watching
from relive_recorder.recorder import REPLAY, recorder
from relive_recorder.values import pack

__all__ = ["cursor_class"]


def cursor_class(real: Any) -> Any:
    """The subclass of psycopg2's cursor that takes its place."""

    class Cursor(real):  # type: ignore[misc]
        _relive_played: Optional[CursorResult] = None
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

    Cursor.description = _played("description", real, CursorResult.description)
    Cursor.rowcount = _played("rowcount", real, lambda played: played.answer.get("rowcount", -1))
    Cursor.statusmessage = _played("statusmessage", real, lambda played: played.answer.get("status"))
    Cursor.lastrowid = _played("lastrowid", real, lambda played: played.answer.get("lastrowid", 0))
    Cursor.rownumber = _played("rownumber", real, lambda played: played.at)
    return Cursor


def _played(name: str, real: Any, read: Callable[[Any], Any]) -> property:
    """An attribute that is read from what is played, where that is."""
    descriptor = getattr(real, name)

    def get(self: Any) -> Any:
        played = self._relive_played
        return descriptor.__get__(self) if played is None else read(played)

    return property(get, doc=descriptor.__doc__)


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
    if not is_watching() or not hasattr(connection, "_relive_encoded") or connection.async_:
        return perform()  # type: ignore[no-any-return]
    asked = attempt(_asked, cursor, query, given, many)
    if asked is None:
        return perform()  # type: ignore[no-any-return]
    played = recorder.mode() == REPLAY
    if played and cursor.name is not None:
        raise ExecutedQuery(cursor).broken("rows of named cursors are not answered in a replay")
    _begin(connection)
    return through(ExecutedQuery(cursor), asked, perform)  # type: ignore[no-any-return]


def _begin(connection: Any) -> None:
    """In a replay as psycopg2 does by itself: a transaction begins with the first query, and is no call of its own."""
    if recorder.mode() == REPLAY:
        connection._relive_meet()


def _asked(cursor: Any, query: Any, given: Any, many: bool) -> Dict[str, Any]:
    if not isinstance(query, (str, bytes)) and hasattr(query, "as_string"):
        query = _text(query, cursor)
    return asked_of("postgresql", database_of(cursor.connection), query, given, many)


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

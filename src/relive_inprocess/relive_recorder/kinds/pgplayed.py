"""PostgreSQL without a server, for psycopg 3: results and connections that are made of what was recorded.

Results are recorded as they came over the wire (text, or bytes in the binary format; integers and booleans as such), with the
types' numbers. So in a replay psycopg itself turns them into values, with the adapters and row factories the service gave it.
"""

import sys
from typing import Any, Callable, Dict, Iterator, List, Optional

from relive_recorder.calls import KeptAnswer
from relive_recorder.kinds.query import rows_again
from relive_recorder.values import pack, unpack

__all__ = [
    "PlayedResult",
    "connection_class",
    "encoded_result",
    "encoded_rows_of",
    "error_fields",
    "escaping_class",
    "played_results",
    "transformer_class",
]

_BOOLEAN = 16
_INTEGERS = frozenset((20, 21, 23, 26))  # int8, int2, int4, oid
_TUPLES_OK = 2


def encoded_result(result: Any) -> Dict[str, Any]:
    """What ``answer`` says of a PGresult, but for its rows."""
    encoded: Dict[str, Any] = {"execution": int(result.status)}
    status = result.command_status
    if status:
        encoded["status"] = status.decode("utf-8", "replace")
    touched = result.command_tuples
    fields = range(result.nfields)
    if fields or result.status == _TUPLES_OK:
        encoded["columns"] = [(result.fname(field) or b"").decode("utf-8", "replace") for field in fields]
        encoded["types"] = [result.ftype(field) for field in fields]
        encoded["rowcount"] = result.ntuples
        if any(result.fmod(field) != -1 for field in fields):
            encoded["modifiers"] = [result.fmod(field) for field in fields]
        encoded["sizes"] = [result.fsize(field) for field in fields]
        if fields and result.fformat(0):
            encoded["binary"] = True
    else:
        encoded["rowcount"] = -1 if touched is None else touched
    return encoded


def encoded_rows_of(result: Any, encoding: str) -> Iterator[List[Any]]:
    """Its rows as JSON values, see the module."""
    fields = range(result.nfields)
    readers = [(field, _reader(result.ftype(field), result.fformat(field), encoding)) for field in fields]
    get = result.get_value
    for row in range(result.ntuples):
        encoded = []
        for field, read in readers:
            value = get(row, field)
            encoded.append(None if value is None else read(value))
        yield encoded


def _reader(kind: int, binary: int, encoding: str) -> Callable[[bytes], Any]:
    """What makes a JSON value of one on the wire."""
    if binary:
        return pack
    if kind in _INTEGERS:
        return int
    if kind == _BOOLEAN:
        return b"t".__eq__
    if encoding == "utf-8":
        return _text  # what decodes it would take the encoding's name for each value
    return lambda value: _text(value, encoding)


def _text(value: bytes, encoding: str = "utf-8") -> Any:
    try:
        return value.decode(encoding)
    except ValueError:
        return pack(value)


def _wire(value: Any, encoding: str) -> Optional[bytes]:
    kind = type(value)
    if value is None:
        return None
    if kind is str:
        return value.encode(encoding)  # type: ignore[no-any-return]
    if kind is bool:
        return b"t" if value else b"f"
    if kind is int:
        return str(value).encode("ascii")
    return bytes(unpack(value))


def error_fields(result: Any) -> Dict[str, str]:
    """The fields of an error that the server sent: number (as text) to text."""
    found = {}
    # PG_DIAG_*, https://www.postgresql.org/docs/current/protocol-error-fields.html.
    for code in b"SVCMDHPpqWstcdnFLR":
        value = result.error_field(code)
        if value is not None:
            found[str(code)] = value.decode("utf-8", "replace")
    return found


class PlayedResult:
    """Has the methods of ``psycopg.pq.PGresult``; its content is what ``encoded_result`` and ``encoded_rows_of`` told."""

    nparams = 0
    oid_value = 0
    _data_size = 0

    def __init__(self, answer: Dict[str, Any], rows: List[List[Any]], encoding: str) -> None:
        self._answer = answer
        self._rows = rows
        self._encoding = encoding
        self.status = answer.get("execution", 1)
        self.nfields = len(answer.get("columns", ()))
        self.ntuples = len(rows)
        self.binary_tuples = int(bool(answer.get("binary")))
        status = answer.get("status")
        self.command_status = None if status is None else status.encode()
        rowcount = answer.get("rowcount", -1)
        self.command_tuples = None if rowcount < 0 else rowcount
        self.error_message = answer.get("message", "").encode(encoding, "replace")

    @classmethod
    def of_error(cls, error: Dict[str, Any], encoding: str) -> "PlayedResult":
        """The result that an error was made of."""
        message = unpack(error["args"])
        fields = {"execution": 7, "message": message[0] if message else "", "diag": error.get("diag", {})}
        return cls(fields, [], encoding)

    def clear(self) -> None:
        """Nothing to free."""

    def get_error_message(self, encoding: str = "utf-8") -> str:
        """As it was raised."""
        return str(self._answer.get("message", ""))

    def error_field(self, code: int) -> Optional[bytes]:
        """One of ``error_fields``."""
        text = self._answer.get("diag", {}).get(str(int(code)))
        return None if text is None else text.encode(self._encoding, "replace")

    def fname(self, field: int) -> Optional[bytes]:
        """Name of a column."""
        if 0 <= field < self.nfields:
            return str(self._answer["columns"][field]).encode(self._encoding)
        return None

    def ftype(self, field: int) -> int:
        """Number of its type."""
        return int(self._answer["types"][field])

    def fmod(self, field: int) -> int:
        """Its type's modifier, -1 for none."""
        return int(self._answer["modifiers"][field]) if "modifiers" in self._answer else -1

    def fsize(self, field: int) -> int:
        """Its type's size in bytes, -1 where that varies."""
        return int(self._answer["sizes"][field])

    def ftable(self, _field: int) -> int:
        """Not recorded."""
        return 0

    def ftablecol(self, _field: int) -> int:
        """Not recorded."""
        return 0

    def fformat(self, _field: int) -> int:
        """0: text, 1: binary."""
        return self.binary_tuples

    def get_value(self, row: int, field: int) -> Optional[bytes]:
        """One value as on the wire."""
        return _wire(self._rows[row][field], self._encoding)


def played_results(kept: KeptAnswer, encoding: str) -> List[PlayedResult]:
    """All results of one recorded query."""
    answer = kept.fields["answer"]
    played = [PlayedResult(answer, rows_again(kept, answer), encoding)]
    for one in answer.get("then", ()):
        played.append(PlayedResult(one, rows_again(KeptAnswer({}, b""), one), encoding))
    return played


def transformer_class(adapters: Any, base: Any) -> Any:
    """psycopg's transformer in Python, as a class that reads played results.

    psycopg's own one, where it is in C, takes only results that libpq made; the same holds for its loaders.
    """
    in_python = {fast: slow for slow, fast in adapters._optimised.items()}

    class Transformer(base):  # type: ignore[misc]
        def get_loader(self, oid: int, format: Any) -> Any:
            known = self._loaders[format]
            if oid not in known:
                chosen = self._adapters.get_loader(oid, format) or self._adapters.get_loader(0, format)
                slow = in_python.get(chosen, chosen)
                made = (slow if slow is not chosen else _array_in_python(chosen))(oid, self)
                if "_tx" in getattr(made, "__dict__", ()):  # of arrays and the like, for what is in them
                    made._tx = self
                known[oid] = made
            return known[oid]

    return Transformer


def _array_in_python(loader: Any) -> Any:
    """A loader of arrays; any other as it is. Those are made for each type from one in C, which is not among the optimised, and
    takes every transformer for one in C (psycopg 3.2: the service would die).
    """
    arrays = sys.modules.get("psycopg.types.array")
    for fast in loader.__mro__:
        slow = getattr(arrays, fast.__name__, None)
        if fast.__module__.endswith("._psycopg") and isinstance(slow, type):
            own = {name: value for name, value in vars(loader).items() if not name.startswith("__")}
            return slow if fast is loader else type(loader.__name__, (slow,), own)
    return loader


def connection_class(base: Any) -> Any:
    """``psycopg.pq.PGconn`` as a class whose connections need no server."""

    class PlayedConnection(base):  # type: ignore[misc]
        socket = -1
        status = 0
        transaction_status = 0
        pipeline_status = 0
        error_message = b""
        nonblocking = 1
        _encoding = "utf-8"
        _procpid = 0  # of connections in Python (psycopg without C): there is nothing to let go of

        @classmethod
        def made(cls, real: Any, encoded: Dict[str, Any]) -> Any:
            """In the place of a connection of which only the memory is left, or (None) of one that was recorded."""
            connection = cls.__new__(cls)
            connection._real, connection._encoded = real, encoded
            if real is not None:
                connection.transaction_status = real.transaction_status
                connection._encoding = real._encoding
            return connection

        def finish(self) -> None:
            self.status = 1

        def parameter_status(self, name: bytes) -> Optional[bytes]:
            changed = self._encoded.get("parameters", {}).get(name.decode())
            if changed is not None:
                return str(changed).encode()
            return self._real.parameter_status(name) if self._real is not None else None

        def get_error_message(self, encoding: str = "") -> str:
            return ""

    def about(name: str, otherwise: Any) -> property:
        def read(self: Any) -> Any:
            if self._real is not None:
                return getattr(self._real, name)
            encoded = self._encoded.get(name, otherwise)
            return encoded.encode() if isinstance(encoded, str) else encoded

        return property(read)

    for name in ("db", "user", "password", "host", "hostaddr", "port", "options", "tty"):
        setattr(PlayedConnection, name, about(name, ""))
    for name in ("server_version", "protocol_version", "full_protocol_version", "backend_pid"):
        setattr(PlayedConnection, name, about(name, 0))
    for name in ("used_password", "needs_password", "used_gssapi", "ssl_in_use"):
        setattr(PlayedConnection, name, about(name, False))
    return PlayedConnection


def escaping_class(base: Any, played: Any) -> Any:
    """``psycopg.pq.Escaping`` for connections of which some need no server: those of ``played``, a ``connection_class``."""

    class Escaping(base):  # type: ignore[misc]
        def __new__(cls, conn: Any = None) -> Any:
            if not isinstance(conn, played):
                return base(conn)
            return base(conn._real) if conn._real is not None else base.__new__(cls)

        def __init__(self, conn: Any = None) -> None:
            pass

        def escape_identifier(self, data: Any) -> bytes:
            return b'"' + bytes(data).replace(b'"', b'""') + b'"'

        def escape_string(self, data: Any) -> bytes:
            return bytes(data).replace(b"'", b"''")

        def escape_literal(self, data: Any) -> bytes:
            quoted = b"'" + self.escape_string(data) + b"'"
            # As libpq does it: https://www.postgresql.org/docs/current/libpq-exec.html#LIBPQ-EXEC-ESCAPE-STRING
            return b" E" + quoted.replace(b"\\", b"\\\\") if b"\\" in quoted else quoted

        def escape_bytea(self, data: Any) -> bytes:
            return b"\\x" + bytes(data).hex().encode()

    return Escaping

"""Queries to databases: what all libraries have in common. Event ``query`` (see ``calls``) and event ``rows``.

``asked``: ``system`` ("sqlite", "postgresql", "mysql"), ``database`` (its name or file), ``statement`` (text), ``parameters``
(packed; of ``executemany`` a list of them, with ``many`` true). Beginning and ending a transaction are queries as well
("BEGIN", "COMMIT", "ROLLBACK"), and so is connecting ("CONNECT").

``answer``: ``columns`` (names), ``rowcount``, ``rows`` (a list of lists of packed values) where they come with the answer, what
the library tells beyond that (``lastrowid``, ``status``). Rows whose JSON is longer than ``inline_bytes`` are the event's data
instead; of more than ``body_bytes`` the last are cut: ``rows_cut`` says how many.

Rows that are fetched later are events ``rows``: ``query`` (number of the query's event in this process), ``rows``. No replay
answers with them, so they are bounded: a text or bytes longer than ``inline_bytes`` is a ``long`` of ``values``, and rows behind
``inline_bytes`` of JSON are cut (``rows_cut``). ``has_placeholders`` (true), in a replay: a long value has some, so that it cannot
be compared with the recorded one.
"""

import hashlib
import json
import re
import sys
import threading
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from relive_recorder import bodies, context
from relive_recorder.calls import Channel, KeptAnswer, NoAnswer
from relive_recorder.guard import attempt
from relive_recorder.kinds.sql_names import secret_parameters, without_literals
from relive_recorder.kinds.transactions import transaction_end
from relive_recorder.recorder import FREE, OFF, encode, recorder
from relive_recorder.values import NotKept, pack, to_json, unpack

__all__ = [
    "Query",
    "RowsLater",
    "asked_json",
    "asked_of",
    "asked_quickly",
    "encoded_rows",
    "flush_rows",
    "gather",
    "is_watching",
    "packed_row",
    "record_rows",
    "record_rows_in_python",
    "rows_again",
    "secret_columns",
    "values_again",
]

_PLAIN = frozenset((int, str, bool, type(None)))  # what JSON holds as it is
_TEXTS = frozenset((str, bytes))
_INTEGERS = frozenset((int,))
_NUMBERS = frozenset((int, bool, float, type(None)))
_NONE: "frozenset[int]" = frozenset()
_SHORTEST = 6  # [characters] shorter values of such a column are flags, numbers, states
_FIRST_BATCH = 16
_REMEMBERED = 1024  # [characters] of longer statements it is not remembered what was made of them
# Names that libraries make from a thread's number or what they counted in this process (asyncpg, Django, SQLAlchemy): no choice of
# the service, and not the same where requests overlap. They stand in statements that begin with one of these words.
_WITH_NAMES = frozenset(("SAVE", "RELE", "ROLL", "FETC", "CLOS", "MOVE"))
_MADE_NAME = re.compile(
    r"__asyncpg_savepoint_[0-9a-f]+__|\bs[0-9]+_x[0-9]+\b|_django_curs_[0-9]+_\w+_[0-9]+|\bc_[0-9a-f]+_[0-9a-f]+\b"
)
_LAST_BATCH = 256  # rows of one event


class Query(Channel):
    """The channel of one library's queries.

    Attributes:
        system: as in ``asked``.
    """

    kind = "query"
    system = ""

    def broken(self, text: str) -> BaseException:
        """The library's own error for a connection that broke: what a miss is for the service."""
        return NoAnswer(text)

    def ended(self, tag: str, goes_on: bool) -> Optional[Dict[str, Any]]:
        """``answer`` of a statement that begins or ends a transaction, or a part of one; None where the library has none.

        Args:
            tag: of the command, as PostgreSQL tells it; goes_on: a transaction is open behind it.
        """
        return None

    def simulated(self, asked: Dict[str, Any]) -> Optional[KeptAnswer]:
        """As ``Channel.simulated``: what begins and ends transactions."""
        known = transaction_end(asked.get("statement")) if not asked.get("parameters") else None
        answer = self.ended(*known) if known is not None else None
        return KeptAnswer({"answer": answer, "simulated": True}, b"") if answer is not None else None

    def find(self, asked: Dict[str, Any]) -> Optional[KeptAnswer]:
        """As ``Channel.find``, but a miss is raised as the library's own error."""
        try:
            return super().find(asked)
        except NoAnswer as miss:
            raise self.broken(str(miss)) from miss

    def rebuild_kept(self, kept: KeptAnswer) -> Any:
        """What ``rebuild`` gives, which here may raise ``NotKept``."""
        return super().rebuild(kept)

    def rebuild(self, kept: KeptAnswer) -> Any:
        """The value again; what was not kept is an error of the library."""
        try:
            return self.rebuild_kept(kept)
        except NotKept as missing:
            raise self.broken(f"the recording does not hold this answer: {missing}") from missing


def is_watching() -> bool:
    """Whether queries are recorded or answered at all just now."""
    return recorder.mode() not in (OFF, FREE)


# -- what was asked ----------------------------------------------------------------------------------------------------


def asked_of(
    system: str, database: str, statement: Any, parameters: Any = None, many: bool = False
) -> Dict[str, Any]:
    """``asked`` of a query. ``parameters``: as they were given to the library; ``many``: a list of such."""
    asked: Dict[str, Any] = {"system": system, "database": database, "statement": _statement(statement)}
    if not parameters:
        return asked
    secret = _secret_parameters(statement)
    if many:
        asked["many"] = True
        asked["parameters"] = _bounded([_parameters(one, secret) for one in parameters])
    else:
        asked["parameters"] = _bounded(_parameters(parameters, secret))
    return asked


def _secret_parameters(statement: Any) -> "frozenset[int]":
    """Which of its parameters, from 0, are for a column whose name says that it is secret."""
    if type(statement) is not str or not recorder.scrubber.may_name(statement):
        return _NONE
    return secret_parameters(statement, recorder.scrubber.is_secret_name)


def asked_json(system: str, database: str, statement: Any, parameters: Any = None) -> str:
    """As ``asked_of``, as JSON; quick for a statement that comes again."""
    if type(statement) is not str or len(statement) > _REMEMBERED:
        return encode(asked_of(system, database, statement, parameters))
    made = recorder.scrubber.made()
    about = system, database, statement
    secret = _NONE
    begin = made.get(("asked", *about))
    if begin is None:
        secret = _secret_parameters(statement)
        # By another name where parameters are secret, so that ``asked_quickly`` does not find it.
        key = "named" if secret else "asked", *about
        begin = made.get(key)
        if begin is None:
            begin = made[key] = encode(asked_of(system, database, statement))[:-1]
    if not parameters:
        return f"{begin}}}"
    if type(parameters) is tuple and len(parameters) <= 8 and _INTEGERS.issuperset(map(type, parameters)):
        return f'{begin},"parameters":[{",".join(map(repr, parameters))}]}}'
    return f'{begin},"parameters":{encode(_bounded(_parameters(parameters, secret)))}}}'


def asked_quickly(system: str, database: str, statement: Any, parameters: Any = None) -> Optional[bytes]:
    """As ``asked_json``, made and understood by the writer in C: the time (8 bytes), then the JSON. None where it has to be told in
    the long way.
    """
    quick = recorder.quick
    if quick is None or type(statement) is not str:
        return None
    known = recorder.scrubber.made().get(("asked", system, database, statement))
    if known is None:
        if ("named", system, database, statement) in recorder.scrubber.made():
            return None
        # It remembers what was made of the statement, where that is not too long.
        attempt(asked_json, system, database, statement)
        return None
    asked: Optional[bytes] = quick.asked(known, ',"parameters":', parameters or None)
    return asked


def _statement(statement: Any) -> str:
    if type(statement) is bytes:
        statement = statement.decode("utf-8", "replace")
    if not isinstance(statement, str):
        return f"<{type(statement).__module__}.{type(statement).__qualname__}>"
    text = str.__str__(statement)
    if text[:4].upper() in _WITH_NAMES:
        text = _MADE_NAME.sub("<name>", text)
    if recorder.scrubber.may_name(text):
        text = without_literals(text, recorder.scrubber.is_secret_name, recorder.scrubber.learn)
    return recorder.scrubber.often(text)


def _parameters(given: Any, secret: "frozenset[int]") -> Any:
    if isinstance(given, dict):
        return {str(name): _parameter(value, str(name)) for name, value in dict.items(given)}
    if not isinstance(given, (tuple, list)):
        return _parameter(given)
    if not secret:
        return [_parameter(value) for value in given]
    encoded = recorder.scrubber.secret
    return [
        encoded(pack(value), _SHORTEST) if number in secret else _parameter(value)
        for number, value in enumerate(given)
    ]


def _parameter(value: Any, name: str = "") -> Any:
    kind = type(value)
    if value is None or kind is int or kind is bool:
        return value
    if kind is str:
        if len(value) > recorder.options.inline_bytes:
            return bodies.describe(value.encode("utf-8", "surrogatepass"))
        return recorder.scrubber.named(name, value) if name else recorder.scrubber.text(value)
    if kind in (bytes, bytearray, memoryview) and len(value) > recorder.options.inline_bytes:
        return bodies.describe(bytes(value))
    return recorder.scrubber.packed(pack(value))


def _bounded(packed: Any) -> Any:
    """Itself, or its length and digest where its JSON would be too long for an event."""
    if len(packed) <= 64:
        if (
            type(packed) is list
            and 32 * len(packed) <= recorder.options.inline_bytes
            and _NUMBERS.issuperset(map(type, packed))
        ):
            return packed
        most = max(map(_size, packed.values() if type(packed) is dict else packed), default=0)
        if most * len(packed) <= recorder.options.inline_bytes:
            return packed
    text = to_json(packed)
    if len(text) <= recorder.options.inline_bytes:
        return packed
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return {"$": ["cut", len(packed)], "bytes": len(text), "blake2b": digest}


def _size(packed: Any) -> int:
    kind = type(packed)
    if kind is str:
        return len(packed)
    return 32 if packed is None or kind in (int, float, bool) else len(to_json(packed))


# -- rows ----------------------------------------------------------------------------------------------------------------


def secret_columns(columns: Iterable[Any]) -> List[int]:
    """Which columns, from 0, have a name that says that they are secret."""
    is_secret = recorder.scrubber.is_secret_name
    return [number for number, name in enumerate(columns) if type(name) is str and is_secret(name)]


def _without_columns(row: List[Any], secret: List[int]) -> List[Any]:
    encoded = recorder.scrubber.secret
    for number in secret:
        if number < len(row):
            row[number] = encoded(row[number], _SHORTEST)
    return row


def encoded_rows(
    rows: Iterable[Any], count: int, columns: Iterable[Any] = ()
) -> Tuple[Dict[str, Any], bytes, Dict[str, Any]]:
    """(fields for ``answer``, data, more fields of the event) of so many rows, each a list of packed values.

    No more rows are taken from the iterable than are kept. ``columns``: their names, as far as they are known.
    """
    secret = secret_columns(columns)
    if secret:
        rows = (_without_columns(row, secret) for row in rows)
    options = recorder.options
    taken: List[Any] = []
    texts: List[str] = []
    size = 0
    for row in rows:
        for value in row:
            kind = type(value)
            if kind is str:
                texts.append(value)
                size += len(value) + 3
            elif value is None or kind is int or kind is float or kind is bool:
                size += 8
            else:
                size += gather(value, texts)
        if size > options.body_bytes:
            break
        taken.append(row)
    fields: Dict[str, Any] = {"rows_cut": count - len(taken)} if count > len(taken) else {}
    if texts and not recorder.scrubber.is_clean(texts):
        taken = recorder.scrubber.packed(taken)
    if size <= options.inline_bytes:
        fields["rows"] = taken
        return fields, b"", {}
    about, data = bodies.for_event(to_json(taken).encode("utf-8", "surrogatepass"))
    return fields, data, about


def gather(packed: Any, texts: List[str]) -> int:
    """Add all texts in a packed value; about how long its JSON is."""
    kind = type(packed)
    if kind is str:
        texts.append(packed)
        return len(packed) + 3
    if kind is list:
        return sum([gather(one, texts) for one in packed], 3)
    if kind is dict:
        return sum([gather(one, texts) for one in packed.values()], 8)
    return 8


def rows_again(kept: KeptAnswer, answer: Dict[str, Any]) -> List[List[Any]]:
    """The rows that ``encoded_rows`` told, still packed.

    Raises:
        NotKept: not all of them were kept.
    """
    if answer.get("rows_cut"):
        raise NotKept(f"{answer['rows_cut']} rows were cut")
    if "rows" in answer:
        return list(answer["rows"])
    if not kept.data:
        return []
    return list(json.loads(kept.data.decode("utf-8", "surrogatepass")))


_ident = threading.get_ident
_gathering: "Dict[int, RowsLater]" = {}


def flush_rows() -> None:
    """Write the rows that this thread has fetched so far for its request: the last is the one in which it failed."""
    request, thread = context.here(), _ident()
    for later in list(_gathering.values()):
        if later.request is request and later.thread == thread:
            later.flush()


class RowsLater:
    """Rows that were fetched from a query after it was answered, on their way into ``rows`` events.

    They are gathered in batches that grow, so that few events are written for many rows; ``flush_rows`` writes what is there.

    Attributes:
        request, thread: which fetched the first of the rows that are gathered.
    """

    __slots__ = ("_batch", "_query", "_rows", "_secret", "request", "thread")

    def __init__(self, query: int, columns: Iterable[Any] = (), batch: int = 0) -> None:
        self._query = query
        self._secret = secret_columns(columns)
        self._rows: List[Any] = []
        self._batch = batch
        self.request, self.thread = context.here(), _ident()

    def one(self, row: Any, batch: int = _FIRST_BATCH) -> None:
        """A row was fetched. ``batch``: how many are gathered at first, 1 where it may well be the only one."""
        self._rows.append(row)
        if not self._batch:
            self._batch = batch
        if len(self._rows) >= self._batch:
            self.flush()
            self._batch = min(self._batch * 4, _LAST_BATCH)
        elif len(self._rows) == 1:
            self.request, self.thread = context.here(), _ident()
            _gathering[id(self)] = self

    def many(self, rows: Iterable[Any]) -> None:
        """Rows were fetched at once."""
        self._rows.extend(rows)
        self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        _gathering.pop(id(self), None)
        record_rows(self._query, rows, self._secret)


def record_rows(query: int, rows: List[Any], secret: "Optional[List[int]]" = None) -> None:
    """Write one event ``rows``: what was fetched of the query of that number. ``secret``: of ``secret_columns``."""
    quick = recorder.quick
    if rows and (secret or quick is None or quick.rows(query, rows) is None):
        record_rows_in_python(query, rows, secret)


def record_rows_in_python(query: int, rows: List[Any], secret: "Optional[List[int]]" = None) -> None:
    """As ``record_rows``, where the part in C has refused it."""
    fields: Dict[str, Any] = {"query": query}
    taken: List[Any] = []
    texts: List[str] = []
    left = recorder.options.inline_bytes
    # A secret is learned as a whole.
    longest = sys.maxsize if secret else bodies.long_from()
    for given in rows:
        values = _values_of(given)
        row = _bounded_row(values, longest)
        found: List[str] = []
        size = gather(row, found)
        if size > left and not taken and not secret:
            longest = bodies.BEGINNING
            row, found = _bounded_row(values, longest), []
            size = gather(row, found)
        left -= size
        if left < 0:
            break
        if any(_is_long(value, longest) and bodies.has_placeholder(value) for value in values):
            fields["has_placeholders"] = True
        taken.append(_without_columns(row, secret) if secret else row)
        texts += found
    if len(taken) < len(rows):
        fields["rows_cut"] = len(rows) - len(taken)
    if texts and not recorder.scrubber.is_clean(texts):
        taken = recorder.scrubber.packed(taken)
    fields["rows"] = taken
    recorder.emit("rows", fields)


def _is_long(value: Any, longest: int) -> bool:
    return type(value) in _TEXTS and len(value) > longest


def _bounded_row(values: Iterable[Any], longest: int) -> List[Any]:
    """Packed, of texts and bytes that are longer than that the beginning."""
    row = []
    for value in values:
        if type(value) in _TEXTS and len(value) > longest:
            row.append(_long(value))
        else:
            row.append(value if type(value) in _PLAIN else pack(value))
    return row


def _long(value: "Union[str, bytes]") -> Any:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return {"$": ["long", pack(bodies.beginning(value)), len(value), bodies.crc32(data)]}


def packed_row(row: Any) -> List[Any]:
    """A row of whatever shape as a list of packed values."""
    return [value if type(value) in _PLAIN else pack(value) for value in _values_of(row)]


def _values_of(row: Any) -> Any:
    kind = type(row)
    if kind is tuple or isinstance(row, (tuple, list)) or _is_sqlite_row(kind):
        return row
    return dict.values(row) if isinstance(row, dict) else (row,)


def _is_sqlite_row(kind: type) -> bool:
    return kind.__name__ == "Row" and kind.__module__ == "sqlite3"


def values_again(rows: Iterable[Iterable[Any]]) -> List[Tuple[Any, ...]]:
    """Rows as ``rows_again`` gives them, as tuples of values."""
    return [tuple(unpack(value) for value in row) for row in rows]

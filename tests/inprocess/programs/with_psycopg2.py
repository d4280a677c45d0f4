"""psycopg2: types, transactions, errors, cursor classes, a connection that stays open."""

import datetime
import gc
import weakref
from decimal import Decimal

import psycopg2
from psycopg2 import extras, sql

TABLE = """
    create temp table things (id serial primary key, name text unique, price numeric(8,2), at timestamptz, day date,
        doc jsonb, tags text[], raw bytea, ok bool, ratio float8, took interval)
"""


def main(address, keep):
    fresh = psycopg2.connect(address)
    if "open" not in keep:
        keep["open"] = psycopg2.connect(address)
        keep["open"].autocommit = True
    cursor = keep["open"].cursor()
    cursor.execute("select %s + 1", (41,))
    yield (
        cursor.fetchone(),
        keep["open"].autocommit,
        keep["open"].status,
        isinstance(cursor, psycopg2.extensions.cursor),
    )
    yield from on(fresh)
    fresh.close()
    yield fresh.closed
    try:
        fresh.cursor()
    except psycopg2.Error as error:
        yield error


def is_freed_at_once(connection):
    """A cursor that nobody holds any more is gone without the garbage collector."""
    gc.disable()
    cursor = connection.cursor()
    cursor.execute("select 1")
    cursor.fetchall()
    gone = weakref.ref(cursor)
    del cursor
    gc.enable()
    return gone() is None


def on(connection):
    yield is_freed_at_once(connection)
    yield connection.status, connection.server_version > 0, connection.info.dbname, connection.encoding
    cursor = connection.cursor()
    cursor.execute(TABLE)
    yield cursor.statusmessage, cursor.description, cursor.rowcount, connection.status
    at = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)
    values = ("a", Decimal("1.50"), at, at.date(), extras.Json({"a": [1, None]}), ["x", None])
    values += (b"\x00\xff", True, 0.1, datetime.timedelta(days=1, seconds=2))
    cursor.execute(f"insert into things values (default, {', '.join(['%s'] * 10)}) returning id", values)
    yield cursor.fetchone(), cursor.rowcount, cursor.statusmessage
    cursor.executemany("insert into things (name) values (%s)", ((name,) for name in "bcd"))
    yield cursor.rowcount
    extras.execute_values(cursor, "insert into things (name) values %s", [("e",), ("f",)])
    cursor.execute("select * from things where id = %(id)s", {"id": 1})
    yield [tuple(column) for column in cursor.description]
    row = cursor.fetchone()
    yield [bytes(value) if type(value) is memoryview else value for value in row], cursor.fetchone()
    yield type(row[7]).__name__
    for factory in (extras.DictCursor, extras.RealDictCursor, extras.NamedTupleCursor):
        with connection.cursor(cursor_factory=factory) as special:
            special.execute("select id, name from things order by id")
            yield special.fetchone(), special.fetchmany(2), special.rownumber
            special.scroll(-1)
            yield list(special)
    cursor.execute(
        sql.SQL("select {} from {} where name <> {}").format(
            sql.Identifier("name"), sql.Identifier("things"), sql.Literal("f")
        )
    )
    yield cursor.fetchall()
    yield connection.get_transaction_status()
    try:
        cursor.execute("insert into things (name) values ('a')")
    except psycopg2.errors.UniqueViolation as error:
        yield error, error.pgcode, error.pgerror
    yield connection.get_transaction_status()
    try:
        cursor.fetchone()
    except psycopg2.ProgrammingError as error:
        yield type(error)
    connection.rollback()
    yield connection.get_transaction_status(), connection.status
    with connection, connection.cursor() as other:
        other.execute("select 2; select 'three'")
        yield other.fetchall()
    yield connection.status
    cursor.execute("select repeat('x', 1000) from generate_series(1, 200)")
    yield cursor.fetchall()
    cursor.execute("set statement_timeout to 20")
    try:
        cursor.execute("select pg_sleep(5)")
    except psycopg2.errors.QueryCanceled as error:
        yield error
    connection.rollback()

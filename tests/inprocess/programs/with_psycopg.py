"""psycopg 3: types, transactions, errors, row factories, a connection that stays open."""

import datetime
import gc
import uuid
import weakref
from decimal import Decimal

import psycopg
from psycopg import sql
from psycopg.rows import class_row, dict_row, namedtuple_row
from psycopg.types.json import Jsonb
from psycopg.types.range import Range

TABLE = """
    create temp table things (id serial primary key, name text unique, price numeric(8,2), at timestamptz, day date,
        u uuid, doc jsonb, tags text[], grid int[][], raw bytea, ok bool, ratio float8, span int4range, took interval)
"""


class Thing:
    def __init__(self, id, name):
        self.pair = (id, name)

    def __repr__(self):
        return f"Thing{self.pair}"


def main(address, keep):
    fresh = psycopg.connect(address)
    opened = keep.setdefault("open", None) or psycopg.connect(address, autocommit=True)
    keep["open"] = opened
    yield opened.execute("select %s::int + 1", (41,)).fetchone()
    yield from on(fresh)
    fresh.close()
    yield fresh.closed
    try:
        fresh.execute("select 1")
    except psycopg.Error as error:
        yield error
    yield from transactions(opened)


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
    cursor = connection.cursor()
    cursor.execute("set timezone to 'Europe/Berlin'")
    cursor.execute(TABLE)
    yield cursor.statusmessage, cursor.description, cursor.rowcount
    at = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)
    values = (
        "a",
        Decimal("1.50"),
        at,
        at.date(),
        uuid.UUID(int=7),
        Jsonb({"a": [1, None]}),
        ["x", None],
        [[1, 2], [3, 4]],
    )
    values += (b"\x00\xff", True, 0.1, Range(1, 5), datetime.timedelta(days=1, seconds=2))
    cursor.execute(f"insert into things values (default, {', '.join(['%s'] * 13)}) returning id", values)
    yield cursor.fetchone(), cursor.rowcount, cursor.statusmessage
    cursor.executemany("insert into things (name) values (%s)", ((name,) for name in "bcd"))
    yield cursor.rowcount
    cursor.executemany("insert into things (name) values (%s) returning id", [("e",), ("f",)], returning=True)
    yield [(cursor.fetchall(), cursor.nextset()) for _ in range(2)]
    for binary in (False, True):
        cursor.execute("select * from things where id = %(id)s", {"id": 1}, binary=binary)
        yield [column.name for column in cursor.description], cursor.description[2].precision
        yield cursor.fetchone()
        yield cursor.fetchone()
    yield connection.info.parameter_status("TimeZone"), connection.info.server_version > 0
    for factory in (dict_row, namedtuple_row, class_row(Thing)):
        cursor.row_factory = factory
        cursor.execute("select id, name from things order by id")
        yield [cursor.fetchone(), cursor.fetchmany(2), list(cursor), cursor.rownumber]
    yield connection.execute(
        sql.SQL("select {} from {}").format(sql.Identifier("name"), sql.Identifier("things"))
    ).fetchall()
    yield connection.info.transaction_status
    try:
        connection.execute("insert into things (name) values ('a')")
    except psycopg.errors.UniqueViolation as error:
        yield error, error.sqlstate, error.diag.constraint_name, error.diag.message_detail
    yield connection.info.transaction_status
    connection.rollback()
    yield connection.info.transaction_status
    with connection.cursor("big") as server:
        server.execute("select generate_series(1, 5) as n, now() is not null")
        yield server.fetchone(), server.fetchmany(2), server.fetchall()
    yield connection.execute("select 1; select 'two'").fetchall()
    connection.commit()
    yield connection.execute("select repeat('x', 1000) from generate_series(1, 200)").fetchall()
    yield repr(
        connection.execute(
            "select array[now()::timestamptz] is null, '2024-01-01 00:00+00'::timestamptz"
        ).fetchone()
    )
    connection.rollback()


def transactions(connection):
    with connection.transaction():
        yield connection.info.transaction_status
        try:
            with connection.transaction():
                connection.execute("select 1/0")
        except psycopg.errors.DivisionByZero as error:
            yield str(error)
        yield connection.execute("select 2").fetchone()
    yield connection.info.transaction_status

"""Programs that talk to PostgreSQL with the usual Python libraries; each gives what it saw, as text.

They run against a real server first, then against what was recorded: all they see has to be the same.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import sqlalchemy
from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import create_async_engine

__all__ = ["PROGRAMS"]

MOMENT = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
VALUES: list[Any] = [
    True,
    7,
    1 << 40,
    1.5,
    Decimal("-12345.6700"),
    "gr\u00fcn",
    b"\x00\xff",
    date(2026, 2, 3),
    time(4, 5, 6, 7),
    MOMENT.replace(tzinfo=None),
    MOMENT,
    timedelta(days=2, seconds=3),
    uuid.UUID(int=77),
    [1, None, 3],
    None,
]


def _dsn(port: int) -> str:
    return f"postgresql://postgres@127.0.0.1:{port}/postgres"


def _row(row: Any) -> str:
    return repr(tuple(bytes(one) if isinstance(one, memoryview) else one for one in row))


def psycopg_sync(port: int) -> list[str]:
    """Transactions, errors, prepared after five executions, binary results, server cursors, notices."""
    seen: list[str] = []
    with psycopg.connect(_dsn(port)) as connection:
        connection.add_notice_handler(lambda notice: seen.append(f"notice {notice.message_primary}"))
        with connection.cursor() as cursor:
            cursor.execute(
                "create temp table things (id serial primary key, name text unique, price numeric)"
            )
            for number in range(8):
                cursor.execute(
                    "insert into things (name, price) values (%s, %s) returning id",
                    (f"n{number}", number * 1.5),
                )
                seen.append(_row(cursor.fetchone()))
            connection.commit()
            for number in (3, 5, 3):
                cursor.execute("select * from things where id = %s", (number,))
                seen.append(f"{cursor.statusmessage} {cursor.fetchall()}")
            try:
                cursor.execute("insert into things (name) values (%s)", ("n1",))
            except psycopg.errors.UniqueViolation as error:
                seen.append(
                    f"{error.sqlstate} {error.diag.constraint_name} {connection.info.transaction_status}"
                )
            try:
                cursor.execute("select 1")
            except psycopg.errors.InFailedSqlTransaction as error:
                seen.append(str(error))
            connection.rollback()
            with connection.transaction(), connection.transaction(force_rollback=True):
                cursor.execute("delete from things where id < %s", (4,))
                seen.append(f"{cursor.rowcount}")
            cursor.execute("do $$ begin raise notice 'hello %', 1; end $$")
            cursor.execute("select " + ", ".join(["%s"] * len(VALUES)), VALUES, binary=True)
            seen.append(_row(cursor.fetchone()))
            cursor.execute(
                "select %s::jsonb, array['a', null, 'b \"c\"'], '{}'::int[], 'x'::\"char\"",
                (Jsonb({"a": 1}),),
            )
            seen.append(_row(cursor.fetchone()))
            cursor.execute("select 1 as a; select 2 as b, 3 as c; set timezone = 'UTC'")
            seen.append(repr([cursor.fetchall(), cursor.nextset(), cursor.fetchall(), cursor.nextset()]))
        with connection.cursor(name="walk") as walk:
            walk.itersize = 3
            walk.execute("select id, name from things where id > %s order by id", (1,))
            seen.append(repr(list(walk)))
    return seen


def psycopg_copy(port: int) -> list[str]:
    """COPY both ways, in text and binary, with an error, and with a client that gives up."""
    seen: list[str] = []
    with psycopg.connect(_dsn(port), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("create temp table copied (id int, name text)")
        with cursor.copy("copy copied from stdin") as copy:
            for number in range(50):
                copy.write_row((number, f"name {number}"))
        seen.append(str(cursor.statusmessage))
        with cursor.copy("copy copied to stdout") as copy:
            seen.append(repr(b"".join(bytes(data) for data in copy)))
        with cursor.copy("copy copied from stdin (format binary)") as copy:
            copy.set_types(["int4", "text"])
            copy.write_row((77, "binary"))
        for bad in ("x\ty\n", None):
            try:
                with cursor.copy("copy copied from stdin") as copy:
                    if bad is None:
                        raise KeyError("given up")
                    copy.write(bad)
            except (psycopg.Error, KeyError) as error:
                seen.append(f"{type(error).__name__} {error}")
        seen.append(repr(cursor.execute("select count(*), max(id) from copied").fetchall()))
        try:
            with cursor.copy("copy nowhere from stdin") as copy:
                copy.write_row((1,))
        except psycopg.errors.UndefinedTable as error:
            seen.append(str(error))
    return seen


def psycopg_pipeline(port: int) -> list[str]:
    """Pipeline mode: several queries before a Sync; an error aborts those up to it."""
    seen: list[str] = []
    with psycopg.connect(_dsn(port), autocommit=True) as connection:
        connection.execute("create temp table piped (id int primary key)")
        with connection.pipeline() as pipeline:
            cursors = [
                connection.execute("insert into piped values (%s) returning id", (one,)) for one in range(5)
            ]
            pipeline.sync()
            seen.append(repr([cursor.fetchall() for cursor in cursors]))
            with connection.transaction():
                seen.append(repr(connection.execute("select count(*) from piped").fetchall()))
        try:
            with connection.pipeline() as pipeline:
                connection.execute("insert into piped values (%s)", (10,))
                connection.execute("insert into piped values (%s)", (1,))
                connection.execute("insert into piped values (%s)", (11,))
                pipeline.sync()
        except psycopg.Error as error:
            seen.append(f"{type(error).__name__} {error}")
        cursor = connection.cursor()
        cursor.executemany("insert into piped values (%s) returning id * 2", [(20,), (21,)], returning=True)
        seen.append(repr([cursor.fetchall(), cursor.nextset(), cursor.fetchall()]))
        seen.append(repr(connection.execute("select count(*) from piped").fetchall()))
    return seen


def psycopg_async(port: int) -> list[str]:
    """Two connections at once, and notifications."""

    async def run() -> list[str]:
        seen: list[str] = []
        connect = psycopg.AsyncConnection.connect
        async with await connect(_dsn(port), autocommit=True) as one, await connect(_dsn(port)) as other:
            await one.execute("listen news")
            for number in range(3):
                await other.execute("select pg_notify('news', %s)", (f"item {number}",))
                await other.commit()
            async for notify in one.notifies(stop_after=3):
                seen.append(f"{notify.channel} {notify.payload}")
            seen.append(repr(await (await one.execute("select 5", prepare=True)).fetchall()))
        return seen

    return asyncio.run(run())


def psycopg2_usual(port: int) -> list[str]:
    """Simple queries with parameters in the text; a named cursor; COPY; values in bulk."""
    import io

    seen: list[str] = []
    connection = psycopg2.connect(_dsn(port))
    with connection.cursor() as cursor:
        cursor.execute("create temp table two (id int, name text)")
        psycopg2.extras.execute_values(cursor, "insert into two values %s", [(n, f"n{n}") for n in range(9)])
        cursor.execute("select * from two where name = %s", ("n3",))
        seen.append(repr((cursor.fetchall(), cursor.statusmessage, [one.name for one in cursor.description])))
        cursor.copy_expert("copy two from stdin", io.StringIO("100\tlate\n"))
        into = io.StringIO()
        cursor.copy_expert("copy two to stdout", into)
        seen.append(into.getvalue())
        try:
            cursor.execute("select * from nothing_here")
        except psycopg2.errors.UndefinedTable as error:
            seen.append(f"{error.pgcode} {error}")
        connection.rollback()
        cursor.execute("select %s", ([1, 2],))
        seen.append(repr(cursor.fetchone()))
    with connection.cursor("named") as named:
        named.execute("select generate_series(1, 10)")
        seen.append(repr((named.fetchmany(4), named.fetchall())))
    connection.close()
    return seen


def asyncpg_pool(port: int) -> list[str]:
    """A pool: prepared statements, cursors, transactions, errors, COPY, all types in binary."""

    async def run() -> list[str]:
        seen: list[str] = []
        async with asyncpg.create_pool(_dsn(port), min_size=1, max_size=2) as pool:
            async with pool.acquire() as one:
                await one.execute("create temp table pooled (id int primary key, name text)")
                await one.executemany("insert into pooled values ($1, $2)", [(n, f"n{n}") for n in range(20)])
                for _ in range(2):
                    seen.append(repr(await one.fetch("select * from pooled where id < $1", 3)))
                statement = await one.prepare("select name from pooled where id = $1")
                seen.append(repr([await statement.fetchval(n) for n in (4, 5)]))
                seen.append(repr((statement.get_parameters(), statement.get_attributes())))
                try:
                    async with one.transaction():
                        async for row in one.cursor("select id from pooled order by id", prefetch=7):
                            seen.append(repr(row))
                        await one.execute("insert into pooled values (1, 'twice')")
                except asyncpg.UniqueViolationError as error:
                    seen.append(f"{error.sqlstate} {error.detail}")
                kinds = (
                    "bool,int4,int8,float8,numeric,text,bytea,date,time,timestamp,timestamptz,interval,uuid,int4[],text"
                ).split(",")
                asked = ", ".join(f"${n}::{kind}" for n, kind in enumerate(kinds, 1))
                seen.append(repr(await one.fetchrow(f"select {asked}", *VALUES)))
                seen.append(
                    repr(
                        await one.copy_records_to_table(
                            "pooled", records=[(90, "a"), (91, "b")], columns=["id", "name"]
                        )
                    )
                )
                seen.append(repr(await one.fetchval("select count(*) from pooled")))
                try:
                    await one.fetch("select nothing from nowhere")
                except asyncpg.UndefinedTableError as error:
                    seen.append(str(error))
            seen.append(
                repr(await asyncio.gather(*(pool.fetchval("select $1::int + 1", n) for n in range(2))))
            )
        return seen

    return asyncio.run(run())


def sqlalchemy_engines(port: int) -> list[str]:
    """SQLAlchemy's core over psycopg, and over asyncpg."""
    seen: list[str] = []
    engine = sqlalchemy.create_engine(
        f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres", pool_pre_ping=True
    )
    table = sqlalchemy.Table(
        "alchemical",
        sqlalchemy.MetaData(),
        sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True),
        sqlalchemy.Column("name", sqlalchemy.String(20)),
    )
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert(), [{"name": "a"}, {"name": "b"}])
    with engine.connect() as connection:
        seen.append(repr(connection.execute(sqlalchemy.select(table).where(table.c.name == "b")).all()))
        walk = connection.execution_options(stream_results=True).execute(
            sqlalchemy.select(table).order_by("id")
        )
        seen.append(repr(walk.all()))
    engine.dispose()

    async def run() -> None:
        engine = create_async_engine(f"postgresql+asyncpg://postgres@127.0.0.1:{port}/postgres")
        async with engine.begin() as connection:
            seen.append(repr((await connection.execute(sqlalchemy.select(table))).all()))
            await connection.run_sync(table.drop)
        await engine.dispose()

    asyncio.run(run())
    return seen


PROGRAMS: dict[str, Callable[[int], list[str]]] = {
    one.__name__: one
    for one in (
        psycopg_sync,
        psycopg_copy,
        psycopg_pipeline,
        psycopg_async,
        psycopg2_usual,
        asyncpg_pool,
        sqlalchemy_engines,
    )
}

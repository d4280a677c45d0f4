"""asyncpg: types, prepared statements, cursors, transactions, errors, a pool that stays open."""

import datetime
import uuid
from decimal import Decimal

import asyncpg

TABLE = """
    create temp table things (id serial primary key, name text unique, price numeric(8,2), at timestamptz, day date,
        u uuid, doc jsonb, tags text[], us uuid[], raw bytea, ok bool, ratio float8, took interval)
"""


async def main(address, keep):
    if "open" not in keep:
        keep["open"] = await asyncpg.create_pool(address, min_size=1, max_size=1)
    async with keep["open"].acquire() as connection:
        yield await connection.fetchval("select $1::int + 1", 41)
    fresh = await asyncpg.connect(address)
    async for seen in on(fresh):
        yield seen
    await fresh.close()
    yield fresh.is_closed()
    try:
        await fresh.fetch("select 1")
    except asyncpg.InterfaceError as error:
        yield error


async def on(connection):
    yield connection.get_server_version(), connection.get_settings().TimeZone, connection.is_in_transaction()
    yield await connection.execute(TABLE)
    at = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)
    values = (
        "a",
        Decimal("1.50"),
        at,
        at.date(),
        uuid.UUID(int=7),
        '{"a": 1}',
        ["x", None],
        [uuid.UUID(int=8)],
    )
    values += (b"\x00\xff", True, 0.1, datetime.timedelta(days=1, seconds=2))
    marks = ", ".join(f"${number}" for number in range(1, 13))
    yield await connection.fetchrow(f"insert into things values (default, {marks}) returning id", *values)
    yield await connection.execute("update things set ok = $1", True)
    yield await connection.executemany("insert into things (name) values ($1)", ((name,) for name in "bcd"))
    yield await connection.fetch("select * from things where id = $1", 1)
    rows = await connection.fetch("select id, name from things order by id")
    yield rows, rows[0]["name"], dict(rows[1]), list(rows[0].keys()), isinstance(rows[0], asyncpg.Record)
    yield await connection.fetch("select id from things where false")
    statement = await connection.prepare("select name from things where id > $1 order by id")
    yield statement.get_attributes(), statement.get_parameters(), statement.get_query()
    yield await statement.fetch(1), await statement.fetchval(2), statement.get_statusmsg()
    async with connection.transaction():
        yield connection.is_in_transaction()
        yield [row async for row in connection.cursor("select id from things order by id", prefetch=2)]
        cursor = await connection.cursor("select id from things order by id")
        yield await cursor.fetch(2), await cursor.fetchrow()
        try:
            async with connection.transaction():
                await connection.execute("select 1/0")
        except asyncpg.DivisionByZeroError as error:
            yield error, error.sqlstate
    yield connection.is_in_transaction()
    try:
        await connection.execute("insert into things (name) values ($1)", "a")
    except asyncpg.UniqueViolationError as error:
        yield error, error.constraint_name, error.detail, str(error)
    try:
        await connection.prepare("select * from nowhere")
    except asyncpg.UndefinedTableError as error:
        yield error
    try:
        await connection.fetch("select * from nowhere where a = $1", 1)
    except asyncpg.UndefinedTableError as error:
        yield error
    yield await connection.fetch("select repeat('x', 1000) from generate_series(1, 200)")

"""Transactions that are rolled back when they are recorded and committed the second time, by three libraries for PostgreSQL."""

import asyncio

import asyncpg
import psycopg
import psycopg2


class Wrong(Exception):
    pass


def main(address, keep):
    keep["runs"] = keep.get("runs", 0) + 1
    fails = keep["runs"] == 1
    yield from with_psycopg(psycopg.connect(address, autocommit=True), fails)
    yield from with_psycopg2(psycopg2.connect(address), fails)
    yield asyncio.run(with_asyncpg(address, fails))


def with_psycopg(connection, fails):
    try:
        with connection.transaction():
            yield connection.execute("select 1").fetchone()
            with connection.transaction():
                if fails:
                    raise Wrong
    except Wrong:
        pass
    yield int(connection.info.transaction_status)
    cursor = connection.execute("begin")
    yield int(connection.info.transaction_status)
    cursor.execute("rollback" if fails else "commit;")
    yield int(connection.info.transaction_status), cursor.description, cursor.rowcount
    connection.close()


def with_psycopg2(connection, fails):
    cursor = connection.cursor()
    cursor.execute("select 2")
    yield cursor.fetchone()
    cursor.execute("savepoint one")
    cursor.execute("rollback to savepoint one" if fails else "release savepoint one")
    yield connection.get_transaction_status()
    connection.rollback() if fails else connection.commit()
    yield connection.get_transaction_status()
    connection.close()


async def with_asyncpg(address, fails):
    connection = await asyncpg.connect(address)
    seen = []
    try:
        async with connection.transaction():
            seen.append(await connection.fetchval("select 3"))
            async with connection.transaction():
                if fails:
                    raise Wrong
    except Wrong:
        pass
    seen.append(connection.is_in_transaction())
    await connection.close()
    return seen

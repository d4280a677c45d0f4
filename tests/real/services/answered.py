"""An HTTP service all of whose answers come from elsewhere, over connections that stay open.

``answered.py PORT {"line": PORT, ...}``: each function below that makes a client is called with the port that is given for it.
``GET /NAME/N`` asks that one about the number N, and answers with what it said; ``GET /NAME/N!`` too, but with status 500.
``ANSWERED='{...}' uvicorn answered:app`` is the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable

from answering import application, serve

PORTS: dict[str, int] = json.loads(os.environ.get("ANSWERED") or sys.argv[2])


def line(port: int) -> Callable[[str], object]:
    """A line there, a line back, on one connection."""
    import socket

    sock = socket.create_connection(("127.0.0.1", port))
    lines = sock.makefile("rw")
    lock = threading.Lock()

    def ask(number: str) -> object:
        with lock:
            lines.write(f"{number}\n")
            lines.flush()
            return lines.readline().strip() or "the line is closed"

    return ask


def fresh(port: int) -> Callable[[str], object]:
    """A line there, a line back, each on a connection of its own."""

    def ask(number: str) -> object:
        return line(port)(number)

    return ask


def httpx(port: int) -> Callable[[str], object]:
    """Requests on connections that are kept alive."""
    import httpx

    client = httpx.Client(
        base_url=f"http://127.0.0.1:{port}", timeout=20, limits=httpx.Limits(keepalive_expiry=600)
    )
    client.get("/first")
    return lambda number: client.post(f"/numbers/{number}", json={"number": int(number)}).json()


def https(port: int) -> Callable[[str], object]:
    """Each request on a connection of its own, encrypted."""
    import httpx

    return lambda number: httpx.get(f"https://localhost:{port}/numbers/{number}", timeout=20).text


def redis(port: int) -> Callable[[str], object]:
    """redis-py with its pool."""
    import redis

    client = redis.Redis(port=port, decode_responses=True, socket_timeout=20)
    client.ping()

    def ask(number: str) -> object:
        with client.pipeline(transaction=True) as pipe:
            pipe.incr("hits").set(f"key:{number}", "é" * int(number)).get(f"key:{number}")
            return pipe.execute()

    return ask


def psycopg(port: int) -> Callable[[str], object]:
    """psycopg 3 with its pool: transactions, statements that are prepared after some time, errors."""
    import psycopg
    import psycopg_pool

    pool = psycopg_pool.ConnectionPool(
        f"host=127.0.0.1 port={port} user=postgres dbname=postgres", min_size=3, max_size=3, open=True
    )
    pool.wait()

    def ask(number: str) -> object:
        with pool.connection() as connection:
            rows = connection.execute(
                "insert into hits (who) values (%s) returning n, who, now()::text", (f"psycopg {number}",)
            ).fetchall()
        try:
            with pool.connection() as connection:
                connection.execute("select %s::int / 0", (number,))
        except psycopg.Error as error:
            return [list(rows[0]), type(error).__name__, str(error)]
        return "no error"

    return ask


def asyncpg(port: int) -> Callable[[str], object]:
    """asyncpg with its pool and its prepared statements, in an event loop of its own."""
    import asyncpg

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def run(work: object) -> object:
        return asyncio.run_coroutine_threadsafe(work, loop).result(20)  # type: ignore[arg-type]

    where = {"host": "127.0.0.1", "port": port, "user": "postgres", "database": "postgres"}

    async def make() -> object:
        return await asyncpg.create_pool(**where, min_size=3, max_size=3)

    pool = run(make())

    async def query(number: str) -> object:
        async with pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                "insert into hits (who) values ($1) returning n, who, now()::text", f"asyncpg {number}"
            )
            return [row[0], row[1], row[2], await connection.fetchval("select count(*) from hits")]

    return lambda number: run(query(number))


ASK = {name: globals()[name](port) for name, port in PORTS.items()}


def answer(path: str) -> tuple[int, bytes]:
    """(status, body)."""
    _, name, number = path.split("/")
    try:
        said = json.dumps(ASK[name](number.rstrip("!")))
    except Exception as error:
        said = json.dumps(f"{type(error).__name__}: {error}")
    return 500 if number.endswith("!") else 200, said.encode()


app = application(answer)

if __name__ == "__main__":
    serve(int(sys.argv[1]), answer)

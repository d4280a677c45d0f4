"""The service that ``chaos.py`` observes: it counts requests in memory and in SQLite.

    python benchmarks/_chaos_service.py PORT DIRECTORY

It imports nothing but what it needs: every commit holds all its memory, and each is laid out and checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections import Counter
from pathlib import Path


async def serve(port: int, directory: Path) -> None:
    """Count requests: ``POST /add/ID`` adds one, ``GET /state`` tells both counts, ``GET /ids`` every id with its count."""
    memory: Counter[str] = Counter()
    database = sqlite3.connect(directory / "seen.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT)")

    def answer(method: str, path: str) -> object:
        if method == "POST":
            name = path.removeprefix("/add/")
            database.execute("INSERT INTO seen VALUES (?)", (name,))
            memory[name] += 1
            return name
        if path == "/ids":
            return [memory, dict(database.execute("SELECT id, count(*) FROM seen GROUP BY id"))]
        return [memory.total(), database.execute("SELECT count(*) FROM seen").fetchone()[0]]

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = head.split(b" ", 2)[:2]
                body = json.dumps(answer(method.decode(), path.decode())).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(client, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))

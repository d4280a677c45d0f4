"""A FastAPI service whose state lies in memory, in SQLite (WAL) and in an append-only log; started by uvicorn."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time

from fastapi import FastAPI

app = FastAPI()
state = {"count": 0, "ticks": 0}
lock = threading.Lock()
database = sqlite3.connect(os.environ["COUNTER_DB"], check_same_thread=False)
database.execute("pragma journal_mode=wal")
database.execute("create table if not exists hits (n integer primary key)")
database.commit()
log = open(os.environ["COUNTER_DB"] + ".log", "a", buffering=1)  # noqa: SIM115, PTH123 - open for the service's life


@app.post("/count")
def count() -> dict[str, int]:
    with lock:
        state["count"] += 1
        database.execute("insert into hits values (?)", (state["count"],))
        database.commit()
        log.write(f"{state['count']}\n")
        return {"count": state["count"]}


@app.get("/state")
def tell() -> dict[str, object]:
    with lock:
        (rows,) = database.execute("select count(*) from hits").fetchone()
        with open(log.name) as written:  # noqa: PTH123
            lines = len(written.readlines())
        return {
            "count": state["count"],
            "rows": rows,
            "lines": lines,
            "pid": os.getpid(),
            "monotonic": time.monotonic(),
            "wall": time.time(),
        }


@app.get("/slow/{seconds}")
async def slow(seconds: float) -> dict[str, int]:
    before = state["count"]
    await asyncio.sleep(seconds)
    return {"before": before, "after": state["count"]}

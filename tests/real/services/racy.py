"""A service whose answers hang on who comes first: ``uvicorn racy:app`` with ``RACY=DATABASE`` and ``RACY_LATER=SECONDS``.

``GET /read/KEY`` remembers what the database says of a key. ``GET /move/KEY`` changes it there, a moment later than it is asked to,
and has it forgotten. ``GET /check/KEY`` fails if what is remembered is not what is there: then a read had asked the database before
the move, and remembered its answer after it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing

from fastapi import FastAPI

app = FastAPI()
DATABASE = os.environ["RACY"]
remembered: dict[str, int] = {}
CAREFUL = False
LATER = float(os.environ["RACY_LATER"])  # [s] a move begins its work so long after it was asked for


def asked(statement: str, *values: object) -> list[tuple[int]]:
    with closing(sqlite3.connect(DATABASE, timeout=20)) as database, database:
        return database.execute(statement, values).fetchall()


asked("create table if not exists places (key text primary key, place integer)")


@app.get("/read/{key}")
def read(key: str) -> int:
    if key not in remembered:
        rows = asked("select place from places where key = ?", key)
        remembered[key] = rows[0][0] if rows else 0
    return remembered[key]


@app.get("/move/{key}")
def move(key: str) -> int:
    time.sleep(LATER)
    asked("insert into places values (?, 1) on conflict (key) do update set place = place + 1", key)
    remembered.pop(key, None)
    return 1


@app.get("/check/{key}")
def check(key: str) -> dict[str, float]:
    there = asked("select place from places where key = ?", key)[0][0]
    if CAREFUL:
        remembered.clear()
    if remembered.get(key, there) != there:
        raise RuntimeError(f"{key} was moved, and is remembered where it was")
    return {"place": there, "at": time.time()}

"""A service that asks its database and then fails: SQLite, or PostgreSQL through psycopg, as ``DATABASE`` says."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

import psycopg
from fastapi import FastAPI

app = FastAPI()
DATABASE = os.environ["DATABASE"]
IS_SQLITE = not DATABASE.startswith("postgresql:")
MARK = "?" if IS_SQLITE else "%s"


def connect() -> Any:
    return sqlite3.connect(DATABASE) if IS_SQLITE else psycopg.connect(DATABASE)


@app.post("/pay/{number}")
def pay(number: int) -> dict[str, float]:
    with closing(connect()) as database:
        lines = (
            "select u.name, o.id, o.status, i.sku, i.qty from users u join orders o on o.user_id = u.id "
            f"left join items i on i.order_id = o.id where u.id = {MARK} and o.status <> 'void' order by o.id, i.sku"
        )
        database.execute(lines, (number,)).fetchall()
        database.execute(
            f"select count(*), sum(total) from orders where user_id = {MARK} and status = 'open'", (number,)
        ).fetchall()
        database.execute(f"update users set balance = balance - 5 where id = {MARK}", (number,))
        row = database.execute(f"select balance, made from users where id = {MARK}", (number,)).fetchone()
        database.execute("select id from users where balance < 0").fetchall()
        database.commit()
    return {"rate": {"EUR": 1.0}[f"currency of {row[0]}"]}

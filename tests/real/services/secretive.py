"""A service that meets secrets in all the ways of ``planted``: it is started with some, sent some, asks for some, and fails."""

from __future__ import annotations

import argparse
import base64
import gzip
import json
import logging
import os
import sqlite3
from pathlib import Path
from typing import Any

import redis
import requests
from fastapi import FastAPI, Request, Response
from planted import SECRETS

app = FastAPI()
log = logging.getLogger("secretive")
logging.basicConfig(level=logging.INFO)


class Refused(Exception):
    """What each request ends with."""


# Of a type each, so that each is an incident of its own.
REFUSALS = {
    way: type(f"Refused{way.title()}", (Refused,), {}) for way in ("json", "form", "multipart", "gzip")
}


class Account:
    def __init__(self, name: str, api_key: str) -> None:
        self.name, self.api_key = name, api_key


def database() -> sqlite3.Connection:
    made = sqlite3.connect("users.sqlite")
    made.execute("CREATE TABLE IF NOT EXISTS users (name TEXT, password TEXT)")
    return made


@app.post("/body/{way}")
async def body(way: str, request: Request) -> None:
    """JSON, a form, a form in parts, JSON in gzip."""
    data = await request.body()
    if request.headers.get("content-encoding") == "gzip":
        data = gzip.decompress(data)
    size = len(data)
    raise REFUSALS[way](f"{size} bytes are refused")


@app.get("/head")
async def head(request: Request) -> None:
    """Query and headers."""
    count = len(request.query_params) + len(request.headers)
    raise Refused(f"{count} of them are refused")


@app.get("/answer")
async def answer(response: Response) -> dict[str, str]:
    """An answer with a token and a cookie; no failure."""
    response.set_cookie("sid", SECRETS["answer-cookie"])
    return {"access_token": SECRETS["answer-token"], "kind": "bearer"}


@app.get("/within")
def within(redis_port: int, upstream: int) -> None:
    """What the service keeps, asks, logs and holds."""
    store = redis.Redis(port=redis_port, decode_responses=True)
    _asks_redis(store)
    _asks_sqlite()
    _asks_upstream(upstream)
    log.info("opened the door with %s today", SECRETS["late"])
    log.info("and then password=%s was told", SECRETS["late"])
    log.info("login password=%s of ada", SECRETS["log-pair"])
    log.info("sent Authorization: Bearer %s", SECRETS["log-bearer"])
    log.info("packed %s", base64.b64encode(os.environ["API_KEY"].encode()).decode())
    settings = Path("shop.ini").read_text(encoding="utf-8")
    _fails({"secret": SECRETS["local-key"], "name": "ada"}, SECRETS["local-name"], len(settings))


def _asks_redis(store: Any) -> None:
    store.get("user:1:password")
    store.hget("user:1", "token")
    store.hgetall("user:2")
    store.set("apikey:3", SECRETS["redis-set"])


def _asks_sqlite() -> None:
    with database() as users:
        users.execute("INSERT INTO users (name, password) VALUES (?, ?)", ("ada", SECRETS["sql-parameter"]))
        users.execute(f"INSERT INTO users (name, password) VALUES ('eve', '{SECRETS['sql-column']}')")
        users.execute(f"SELECT name FROM users WHERE password = '{SECRETS['sql-literal']}'").fetchall()
        users.execute("SELECT name, password FROM users").fetchall()


def _asks_upstream(port: int) -> None:
    headers = {"X-Api-Key": SECRETS["out-header"], "X-Door": "open"}
    requests.get(f"http://127.0.0.1:{port}/session", headers=headers, timeout=30)


def _fails(given: dict[str, str], db_password: str, size: int) -> None:
    account = Account("ada", SECRETS["local-attribute"])
    where = f"amqp://ada:{SECRETS['exception-url']}@127.0.0.1/shop"
    raise Refused(f"no way to {where} for {account.name} with {len(given)}, {len(db_password)}, {size}")


def main() -> None:
    """Serve, with what the command line says."""
    import uvicorn

    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    for name in ("--db-password", "--api-token", "--internalcode", "--broker"):
        parser.add_argument(name)
    given = parser.parse_args()
    assert given.db_password
    assert json.dumps(vars(given))
    uvicorn.run(app, port=given.port)


if __name__ == "__main__":
    main()

"""A real service fails after it asked its database; ``relive fixture`` makes one in which it gets the same rows."""

from __future__ import annotations

import http.client
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from support.servers import HAS_POSTGRES, postgres_server
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, free_port

SHOP = """
create table users(id integer primary key, name text, balance numeric(10, 2), made timestamp);
create table orders(id integer primary key, user_id integer, status text, total integer);
create table items(id integer primary key, order_id integer, sku text, qty integer);
insert into users values (1, 'ann', 100, '2025-01-02 03:04:05'), (7, 'bob', 50, '2025-06-07 08:09:10');
insert into orders values (10, 1, 'open', 3), (11, 7, 'open', 5), (12, 7, 'paid', 8), (13, 7, 'void', 2), (14, 7, 'open', 4);
insert into items values (100, 11, 'A', 2), (101, 11, 'B', 1), (102, 12, 'C', 5), (103, 10, 'D', 1);
"""


@pytest.fixture
def sqlite_shop(tmp_path: Path) -> str:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("pragma journal_mode = wal;" + SHOP)
    return str(path)


@pytest.fixture
def postgres_shop() -> Iterator[str]:
    if not HAS_POSTGRES:
        pytest.skip("needs PostgreSQL")
    with postgres_server() as address:
        with psycopg.connect(address, autocommit=True) as database:
            database.execute(SHOP)
        yield address


def post(port: int, path: str) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT)) as connection:
        connection.request("POST", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status


@pytest.mark.parametrize("shop", ["sqlite_shop", "postgres_shop"])
def test_the_queries_of_an_incident_give_the_same_in_its_fixture(relive, request, tmp_path, shop):
    port, own = free_port(), free_port()
    command = (PYTHON, "-m", "uvicorn", "--app-dir", SERVICES, "--port", own, "failing_payments:app")
    options = ("--detach", "--name", "payments", "--listen", f"127.0.0.1:{port}", "--upstream", str(own))
    environment = {"DATABASE": request.getfixturevalue(shop)}
    relive("run", *options, "--", *map(str, command), environment=environment)
    eventually(lambda: post(port, "/nothing") == 404, "the service answers")
    assert post(port, "/pay/7") == 500

    def whole() -> int | None:
        found = relive.incidents()
        shown = relive("show", str(found[0]["number"])) if found else {"timeline": None}
        rows = (shown["timeline"] or {}).get("rows", [])
        return (
            found[0]["number"]
            if any(row["took_ns"] for row in rows if row["kind"] == "handling-started")
            else None
        )

    number = eventually(whole, "the incident with its queries")
    made = relive("fixture", str(number), "-o", str(tmp_path / "made"))
    assert [(one["sql"][:20], one["reason"]) for one in made["queries"] if not one["satisfied"]] == []
    assert sum(one["compared"] for one in made["queries"]) == 5
    assert made["tables"] == {"users": 1, "orders": 3, "items": 3}
    assert made["states"] == []
    with closing(sqlite3.connect(tmp_path / "made" / "fixture.sqlite")) as database:
        assert database.execute("select id, name, balance, made from users").fetchall() == [
            (7, "bob", 50, "2025-06-07 08:09:10")
        ]
    again = relive("fixture", "--check", str(tmp_path / "made"))
    assert again["satisfied"]
    built = relive(
        "fixture", "--build", str(tmp_path / "made" / "fixture.yaml"), "-o", str(tmp_path / "built")
    )
    assert json.dumps(built["queries"]) == json.dumps(again["queries"])

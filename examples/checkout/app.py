"""A small checkout: carts in Redis, orders in PostgreSQL, cards charged by a gateway over HTTP.

Run it with ``uvicorn app:app --app-dir examples/checkout``. It needs $CHECKOUT_DATABASE (a PostgreSQL URL), $CHECKOUT_REDIS (a
port) and $CHECKOUT_GATEWAY (a URL; ``gateway.py`` is one).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import redis
from fastapi import FastAPI, HTTPException
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("checkout")

database = ConnectionPool(
    os.environ["CHECKOUT_DATABASE"], min_size=2, max_size=4, open=False, kwargs={"row_factory": dict_row}
)
carts = redis.Redis(port=int(os.environ["CHECKOUT_REDIS"]), decode_responses=True)
gateway = httpx.Client(base_url=os.environ["CHECKOUT_GATEWAY"], timeout=10)


class ChargeRefused(Exception):
    """The gateway does not take the card, or what it is asked for makes no sense to it."""


@asynccontextmanager
async def lifespan(_: FastAPI) -> Any:
    """Connect, make the tables."""
    database.open(wait=True)
    with database.connection() as connection:
        connection.execute((Path(__file__).parent / "schema.sql").read_text())
    yield
    database.close()


app = FastAPI(title="checkout", lifespan=lifespan)


@app.get("/products")
def list_products() -> list[str]:
    """List what can be bought."""
    with database.connection() as connection:
        return [row["sku"] for row in connection.execute("SELECT sku FROM products ORDER BY sku")]


@app.post("/carts/{customer}/{sku}")
def add_to_cart(customer: str, sku: str) -> int:
    """Put one more into a cart; tells how many are in it."""
    return int(carts.hincrby(f"cart:{customer}", sku, 1))


@app.post("/checkout/{customer}", status_code=201)
def check_out(customer: str) -> dict[str, Any]:
    """Make an order of the cart, and charge for it."""
    lines = _lines(customer)
    if not lines:
        raise HTTPException(409, "the cart is empty")
    order = _place(customer, lines)
    carts.delete(f"cart:{customer}")  # from here on a second click finds an empty cart
    charge = _charge(order, customer, _total(lines))
    with database.connection() as connection:
        connection.execute("UPDATE orders SET state = 'paid', charge = %s WHERE id = %s", [charge, order])
    return {"order": order, "charge": charge}


def _lines(customer: str) -> list[dict[str, Any]]:
    """What is in the cart, at the prices of now."""
    wanted = carts.hgetall(f"cart:{customer}")
    with database.connection() as connection:
        found = connection.execute(
            "SELECT sku, price FROM products WHERE sku = ANY(%s) ORDER BY sku", [sorted(wanted)]
        )
        return [{**row, "amount": int(wanted[row["sku"]])} for row in found]


def _total(lines: list[dict[str, Any]]) -> Decimal:
    return sum((line["price"] * line["amount"] for line in lines), Decimal(0))


def _place(customer: str, lines: list[dict[str, Any]]) -> int:
    with database.connection() as connection:
        (order,) = connection.execute(
            "INSERT INTO orders (customer, total) VALUES (%s, %s) RETURNING id", [customer, _total(lines)]
        )
        for line in lines:
            connection.execute(
                "INSERT INTO order_lines (order_id, sku, amount, price) VALUES (%s, %s, %s, %s)",
                [order["id"], line["sku"], line["amount"], line["price"]],
            )
    return int(order["id"])


def _charge(order: int, customer: str, amount: Decimal) -> str:
    """Ask for the money; tries once more, at the prices of then, when the gateway has no time."""
    for asked in _amounts(customer, amount):
        answer = gateway.post("/charges", json={"order": order, "amount": str(asked)})
        if answer.status_code == 201:
            return str(answer.json()["charge"])
        if answer.status_code != 503:
            break
        log.warning("order %d: the gateway is busy, trying again", order)
    raise ChargeRefused(f"order {order}: {answer.status_code} {answer.json()['error']}")


def _amounts(customer: str, first: Decimal) -> Iterator[Decimal]:
    """The amount to ask for, and the one to ask for the second time: a late answer can come after prices have changed."""
    yield first
    yield _total(_lines(customer))

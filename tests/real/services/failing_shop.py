"""A shop that fails when an order's currency has no rate; everything a failure should show is in its frames."""

from __future__ import annotations

import random
import time

from fastapi import FastAPI

app = FastAPI()
RATES = {"EUR": 1.0}


class Order:
    def __init__(self, number: int, currency: str) -> None:
        self.number, self.currency = number, currency


def in_euro(order: Order, amount: float) -> float:
    return RATES[order.currency] * amount


@app.post("/pay/{number}")
async def pay(number: int, currency: str, token: str = "") -> dict[str, float]:
    began = time.time()
    again = time.time()
    order = Order(number, currency)
    amount = random.random()
    return {"euro": in_euro(order, amount), "took": again - began, "token": len(token)}

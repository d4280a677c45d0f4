"""A FastAPI service with failures to be looked at: in an asynchronous and in a synchronous handler, in a thread, in its log."""

import logging
import sys
import threading

import uvicorn
from fastapi import FastAPI, HTTPException

ACCOUNTS = {1: 100}


class Order:
    """Its representation must never be asked for by Relive."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.items = ["book", "pen"]

    def total(self) -> int:
        return 7 * len(self.items)

    def __repr__(self) -> str:
        raise RuntimeError("somebody asked")


app = FastAPI()


@app.get("/ok")
async def ok() -> dict[str, int]:
    return ACCOUNTS_SEEN


ACCOUNTS_SEEN: dict[str, int] = {"seen": 0}


@app.post("/payments/{number}")
async def pay(number: int) -> int:
    order = Order(number)
    ACCOUNTS_SEEN["seen"] += 1
    return ACCOUNTS[order.number]


@app.get("/sync/{number}")
def pay_at_once(number: int) -> int:
    order = Order(number)
    return ACCOUNTS[order.number]


@app.get("/kept/{number}")
def pay_and_stay(number: int) -> int:
    return ACCOUNTS[number]


@app.get("/together/{number}")
def pay_together(number: int) -> int:
    return ACCOUNTS[number]


@app.get("/again")
async def again() -> int:
    return ACCOUNTS[4]


@app.get("/refuse/again")
@app.get("/refuse")
async def refuse() -> None:
    raise HTTPException(503, "closed")


@app.get("/log")
async def log() -> str:
    try:
        return str(ACCOUNTS[99])
    except KeyError:
        logging.exception("no such account")
        return "none"


@app.get("/thread")
async def thread() -> str:
    threading.Thread(target=lambda: ACCOUNTS[77], name="accountant").start()
    return "started"


uvicorn.run(app, port=int(sys.argv[1]), log_level="warning")

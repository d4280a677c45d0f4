"""A ledger that packs its total into two bytes. PORT RATES"""

import struct
import sys

import uvicorn
from fastapi import FastAPI
from rates import rate

app = FastAPI()
total = 0


@app.get("/add")
async def add(by: int) -> int:
    global total  # noqa: PLW0603 - the state of the service
    total += by
    return total


@app.get("/pack")
async def pack() -> str:
    return struct.pack("<H", total * rate() // 2).hex()


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")

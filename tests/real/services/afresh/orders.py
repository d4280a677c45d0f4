"""Takes orders: rates from Redis when it starts, a price from elsewhere for each; a currency that has no rate is its bug."""

import os
import time
import uuid

import httpx
import redis
from fastapi import FastAPI, Request

app = FastAPI()
cache = redis.Redis.from_url(os.environ["REDIS_URL"])
rates = {name.decode(): int(rate) for name, rate in cache.hgetall("rates").items()}


@app.post("/orders")
async def order(request: Request):
    wanted = await request.json()
    async with httpx.AsyncClient() as client:
        token = {"authorization": "Bearer " + os.environ["PRICE_TOKEN"]}
        answer = await client.get(os.environ["PRICES"], headers=token)
    number, at, left = uuid.uuid4().hex, time.time(), int(cache.decr("stock"))
    rate = rates[wanted["currency"]]
    return {"total": answer.json()["price"] * rate, "number": number, "at": at, "left": left}

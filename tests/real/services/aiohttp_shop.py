"""A service of aiohttp.web which reads a clock and randomness, waits for threads, and fails when its stock is gone."""

import asyncio
import sys
import time
import uuid

from aiohttp import web

STOCK = {"pen": 3}


def look(what: str) -> int:
    """In a thread."""
    STOCK[what] -= 1
    return STOCK[what]


async def order(request: web.Request) -> web.Response:
    what = request.match_info["what"]
    name, left = uuid.uuid4().hex, await asyncio.to_thread(look, what)
    if left < 0:
        raise ValueError(f"no {what} is left for {name}")
    return web.json_response({"name": name, "at": time.time(), "left": left, "wall": time.time_ns()})


app = web.Application()
app.add_routes([web.get("/order/{what}", order)])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)

"""A reader of somebody else's feed, which is kept as it came. PORT RATES FEED-PORT"""

import json
import logging
import sys

from aiohttp import ClientError, ClientSession, web
from rates import rate

feed = '{"price": 1}'


async def load(request: web.Request) -> web.Response:
    global feed  # noqa: PLW0603 - the state of the service
    part = request.query.get("part", "whole")
    async with ClientSession() as session, session.get(f"http://127.0.0.1:{sys.argv[3]}/{part}") as answer:
        feed = await answer.text()
    return web.Response(text="loaded")


async def read(_request: web.Request) -> web.Response:
    try:
        of_today = rate()
        return web.Response(text=str(json.loads(feed)["price"] * of_today))
    except (ClientError, OSError, ValueError):
        logging.exception("the feed cannot be read")
        return web.Response(status=502, text="bad feed")


app = web.Application()
app.add_routes([web.get("/load", load), web.get("/read", read)])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)

"""A service whose answers hang on what others say, on clocks, on chance, and on requests before: ``dependent.py PORT``.

``DEPENDENT='{"rates": PORT, "postgres": URL}'`` says whom it asks. ``DEPENDENT='{...}' uvicorn dependent:app`` is the same.

``GET /rated/CUR`` asks the rates for a factor, ``GET /stored/ITEM`` the database for a price, ``GET /lucky`` draws a number that
must not be below a half, ``GET /timely`` needs a clock that shows an even year, ``GET /noted/NAME`` notes a name, ``GET /checked``
fails once both ``left`` and ``right`` are noted. What fails is answered 500.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
import traceback
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OTHERS = json.loads(os.environ["DEPENDENT"])
NOTED: set[str] = set()
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def rated(currency: str) -> float:
    """Four of what the rates tell."""
    with DIRECT.open(f"http://127.0.0.1:{OTHERS['rates']}/rates/{currency}", timeout=20) as answer:
        return 4.0 * json.load(answer)["factor"]


def stored(item: str) -> float:
    """Twice the item's price."""
    import psycopg

    with psycopg.connect(OTHERS["postgres"]) as connection:
        row = connection.execute("select id, price from items where name = %s", [item]).fetchone()
    assert row is not None
    return 2 * row[1]


def lucky(_: str) -> float:
    """More than a half."""
    drawn = random.random()
    assert drawn >= 0.5, "unlucky"
    return drawn


def timely(_: str) -> int:
    """In even years."""
    year = time.gmtime(time.time()).tm_year
    assert year % 2 == 0, "an odd year"
    return year


def noted(name: str) -> int:
    """Note a name; some do not go together."""
    NOTED.add(name)
    return len(NOTED)


def checked(_: str) -> int:
    """That no two are there that do not go together."""
    assert not {"left", "right"} <= NOTED, "left and right are both there"
    return len(NOTED)


DOES = {
    "rated": rated,
    "stored": stored,
    "lucky": lucky,
    "timely": timely,
    "noted": noted,
    "checked": checked,
}


def answer(path: str) -> tuple[int, bytes]:
    """(status, body)."""
    _, name, *rest = path.split("/")
    try:
        return 200, str(DOES[name](rest[0] if rest else "")).encode()
    except Exception:
        traceback.print_exc()
        return 500, b"failed"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet, or each answer waits for a delayed acknowledgement

    def do_GET(self) -> None:
        status, body = answer(self.path)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


async def app(scope, receive, send):  # type: ignore[no-untyped-def]
    """The same for a server that the recorder in Python processes knows."""
    if scope["type"] != "http":
        return
    status, body = await asyncio.to_thread(answer, scope["path"])
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

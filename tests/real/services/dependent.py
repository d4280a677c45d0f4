"""A service whose answers hang on what others say, on clocks, on chance, and on requests before: ``dependent.py PORT``.

``DEPENDENT='{"rates": PORT, "postgres": URL}'`` says whom it asks. ``DEPENDENT='{...}' uvicorn dependent:app`` is the same.

``GET /rated/CUR`` asks the rates for a factor, ``GET /stored/ITEM`` the database for a price, ``GET /lucky`` draws a number that
must not be below a half, ``GET /timely`` needs a clock that shows an even year, ``GET /noted/NAME`` notes a name, ``GET /checked``
fails once both ``left`` and ``right`` are noted. What fails is answered 500.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
import urllib.request

from answering import application, serve

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


app = application(answer)

if __name__ == "__main__":
    serve(int(sys.argv[1]), answer)
